//! Programs for tests.

/// Some numbers.
pub(crate) fn numbers(seed: usize, len: usize) -> Vec<f64> {
    (0..len).map(|i| ((seed + 1) as f64 * (i + 1) as f64).sin()).collect()
}

/// The number of an instruction in programs.
pub(crate) fn code(function: &str) -> i32 {
    match function {
        "tanh" => 29,
        "logistic" => 30,
        "softplus" => 31,
        "relu" => 36,
        "gelu" => 37,
        "silu" => 38,
        "log_cosh" => 39,
        "elu" => 41,
        "selu" => 42,
        _ => panic!("there is no function {function}"),
    }
}

/// The words and the tables of a function of all numbers and a dense layer, for each two widths. The weights of a layer are
/// followed by its bias.
pub(crate) fn dense_layers(function: &str, widths: &[usize]) -> (Vec<i32>, Vec<f64>) {
    let (mut words, mut tables) = (Vec::new(), Vec::new());
    let (mut place, mut operations) = (0, 0);
    for (layer, pair) in widths.windows(2).enumerate() {
        let &[depth, width] = pair else { unreachable!("windows of two") };
        let (made, out, first) = (place + depth, place + 2 * depth, tables.len());
        tables.extend(numbers(layer, depth * width).into_iter().map(|x| x / (depth as f64).sqrt()));
        tables.extend(numbers(layer + 7, width));
        let map = [3, depth, 1, 2, 0, place, 1, 0, 1, 0, 0, 0, 1, 1, made];
        let from = words.len();
        words.extend(map.map(|word| word as i32));
        words[from + 7] = code(function);
        words.extend([0, 1, 1, width, depth, depth, out, first, 1].map(|word| word as i32));
        words.extend((0..width).map(|output| (first + depth * width + output) as i32));
        words.push(made as i32);
        (place, operations) = (out, operations + 2);
    }
    let head = [widths[0], 0, 1, place, place + 1, tables.len(), operations].map(|word| word as i32);
    (head.into_iter().chain(words).collect(), tables)
}
