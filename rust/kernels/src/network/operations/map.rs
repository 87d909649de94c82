//! Functions of single numbers: steps on blocks of numbers, which are in memory or in registers.

use super::Numbers;
use super::functions;
use crate::Error;
use crate::network::words::{Words, wrong};
use crate::numbers::Real;
use pulp::Simd;
use std::ops::Range;

/// Where the numbers of a block are.
#[derive(Debug, Clone, Copy)]
enum Source<T> {
    /// At places one behind the other, the first of which this is for the first element.
    Run(usize),
    Register(usize),
    /// The same one for all elements.
    Number(T),
    /// Those of the filling with this number.
    Filling(usize),
}

/// Numbers that aren't one behind the other in memory. Sums and products take them from where they are; other steps have them
/// put into a register before.
#[derive(Debug)]
enum Filling<T> {
    /// The numbers at these places.
    Places(Vec<u32>),
    /// A parameter for each element.
    Table(Vec<T>),
}

/// What a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Or,
    Atan2,
    Neg,
    Abs,
    Sign,
    SignBit,
    Not,
    IsFinite,
    Square,
    Reciprocal,
    Sqrt,
    Rsqrt,
    Exp,
    ExpM1,
    Ln,
    Ln1p,
    Sin,
    Cos,
    Sinh,
    Cosh,
    Select,
    Tanh,
    Sigmoid,
    Softplus,
    Relu,
    Gelu,
    Silu,
    LogCosh,
    Elu,
    Selu,
    /// What is left of a division of integers.
    Remainder,
    /// A quotient of integers, without what is left.
    Quotient,
    /// Has no number: a result that is an operand.
    Copy,
}

/// The instructions in the order of their numbers, as `python/ferroket/network/numbers.py` has them.
const INSTRUCTIONS: [Instruction; 45] = {
    use Instruction as I;
    [
        I::Add,
        I::Sub,
        I::Mul,
        I::Div,
        I::Max,
        I::Min,
        I::Less,
        I::LessEqual,
        I::Greater,
        I::GreaterEqual,
        I::Equal,
        I::NotEqual,
        I::And,
        I::Or,
        I::Atan2,
        I::Neg,
        I::Abs,
        I::Sign,
        I::SignBit,
        I::Not,
        I::IsFinite,
        I::Square,
        I::Reciprocal,
        I::Sqrt,
        I::Rsqrt,
        I::Exp,
        I::ExpM1,
        I::Ln,
        I::Ln1p,
        I::Tanh,
        I::Sigmoid,
        I::Softplus,
        I::Sin,
        I::Cos,
        I::Sinh,
        I::Cosh,
        I::Relu,
        I::Gelu,
        I::Silu,
        I::LogCosh,
        I::Select,
        I::Elu,
        I::Selu,
        I::Remainder,
        I::Quotient,
    ]
};

impl Instruction {
    /// Whether its arguments are taken from wherever they are.
    fn is_arithmetic(self) -> bool {
        matches!(self, Self::Add | Self::Sub | Self::Mul)
    }

    /// How many arguments it has.
    fn arity(self) -> usize {
        match self {
            Self::Select => 3,
            Self::Remainder | Self::Quotient => 2,
            _ if self as usize <= Self::Atan2 as usize => 2,
            _ => 1,
        }
    }
}

#[derive(Debug)]
struct Step<T> {
    instruction: Instruction,
    result: Source<T>,
    args: [Source<T>; 3],
}

/// Steps for each of some elements.
#[derive(Debug)]
pub(crate) struct Map<T> {
    elements: usize,
    registers: usize,
    fillings: Vec<Filling<T>>,
    /// The registers that are filled, and with what.
    filled: Vec<(usize, usize)>,
    steps: Vec<Step<T>>,
}

impl<T: Real> Map<T> {
    /// How many numbers a register has.
    pub(crate) const BLOCK: usize = 4096 / size_of::<T>();

    pub(super) fn read(words: &mut Words, tables: &[T]) -> Result<Self, Error> {
        let (elements, n_operands, registers) = (words.number()?, words.number()?, words.number()?);
        // Where the numbers of each register are at this step.
        let mut sources: Vec<_> = (0..registers).map(Source::Register).collect();
        let mut fillings = Vec::new();
        if n_operands > registers {
            return Err(wrong(&format!("{n_operands} operands are more than {registers} registers")));
        }
        for source in sources.iter_mut().take(n_operands) {
            match words.number()? {
                0 => *source = Source::Run(words.run(elements)?),
                1 => {
                    *source = Source::Filling(fillings.len());
                    fillings.push(Filling::Places(words.runs(elements, 1)?));
                }
                2 => {
                    let numbers = words.numbers_at(elements)?.iter().map(|&number| tables[number as usize]);
                    *source = Source::Filling(fillings.len());
                    fillings.push(Filling::Table(numbers.collect()));
                }
                3 => *source = Source::Number(tables[words.numbers_at(1)?[0] as usize]),
                kind => return Err(wrong(&format!("there is no operand of kind {kind}"))),
            }
        }
        let mut read = Vec::new();
        for _ in 0..words.number()? {
            let instruction = INSTRUCTIONS[words.below(INSTRUCTIONS.len(), "an instruction")?];
            let result = words.below(registers, "a register")?;
            let mut args = [0; 3];
            for arg in &mut args {
                *arg = words.below(registers, "a register")?;
            }
            if result < n_operands || args.contains(&result) {
                return Err(wrong("a step writes what it reads"));
            }
            read.push((instruction, result, args));
        }
        // The last step that writes a register that is kept writes to memory.
        let mut kept = vec![None; read.len()];
        let mut copies = Vec::new();
        for _ in 0..words.number()? {
            let (register, place) = (words.below(registers, "a register")?, words.run(elements)?);
            match read.iter().rposition(|&(_, result, _)| result == register) {
                Some(step) if kept[step].is_none() => kept[step] = Some(place),
                _ => copies.push((register, place)),
            }
        }
        let mut steps = Vec::new();
        let mut filled = Vec::new();
        // In a register, if the instruction can't take it from where it is.
        let mut argument = |instruction: Instruction, register: usize, source| match source {
            Source::Filling(filling) if !instruction.is_arithmetic() => {
                if !filled.contains(&(register, filling)) {
                    filled.push((register, filling));
                }
                Source::Register(register)
            }
            source => source,
        };
        for ((instruction, result, args), kept) in read.into_iter().zip(kept) {
            // Of those that it doesn't have nothing is read.
            let mut sources_of_args = [Source::Number(T::default()); 3];
            for (source, arg) in sources_of_args.iter_mut().zip(args).take(instruction.arity()) {
                *source = argument(instruction, arg, sources[arg]);
            }
            let args = sources_of_args;
            sources[result] = kept.map_or(Source::Register(result), Source::Run);
            steps.push(Step { instruction, result: sources[result], args });
        }
        for (register, place) in copies {
            let args = [argument(Instruction::Copy, register, sources[register]); 3];
            steps.push(Step { instruction: Instruction::Copy, result: Source::Run(place), args });
        }
        let overlap = |step: &Step<T>| {
            let Source::Run(out) = step.result else { return false };
            let is_in = |&place: &u32| (out..out + elements).contains(&(place as usize));
            let is_read = |filling: &Filling<T>| matches!(filling, Filling::Places(places) if places.iter().any(is_in));
            let is_same = |arg: &Source<T>| matches!(*arg, Source::Run(first) if first.abs_diff(out) < elements);
            step.args.iter().any(is_same) || fillings.iter().any(is_read)
        };
        if elements > 0 && steps.iter().any(overlap) {
            return Err(wrong("a step writes where it reads"));
        }
        Ok(Self { elements, registers, fillings, filled, steps })
    }

    pub(super) fn registers(&self) -> usize {
        self.registers
    }

    /// The one function that it is, with the places of its arguments and of its results, if these are one behind the other.
    pub(crate) fn function(&self) -> Option<(Instruction, Range<usize>, Range<usize>)> {
        let &[Step { instruction, result: Source::Run(out), args: [Source::Run(first), ..] }] = &self.steps[..] else {
            return None;
        };
        Some((instruction, first..first + self.elements, out..out + self.elements))
    }

    pub(super) fn work(&self) -> usize {
        /// A step takes about as long as so many products: between arithmetic and a function.
        const STEP: usize = 8;
        self.elements * self.steps.len() * STEP
    }

    /// For `width` numbers at each place: there are so many `places` in memory, and then registers.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, vectors: usize, places: usize, memory: &mut [T]) {
        // Processors with such vectors have instructions for a b + c.
        const LONG: usize = 32;
        let width = vectors * (size_of::<T::Vector<S>>() / size_of::<T>());
        let at_once = Self::BLOCK / width;
        let mut first = 0;
        while first < self.elements {
            let count = at_once.min(self.elements - first);
            let block = Block { first, width, registers: places * width, len: count * width };
            for &(register, filling) in &self.filled {
                let filling = &self.fillings[filling];
                if vectors == 1 {
                    block.fill::<_, _, 1>(simd, filling, register, memory);
                } else {
                    block.fill::<_, _, 2>(simd, filling, register, memory);
                }
            }
            for step in &self.steps {
                if step.args[..2].iter().any(|arg| matches!(arg, Source::Filling(_))) {
                    if vectors == 1 {
                        block.compute::<_, _, 1>(simd, step, &self.fillings, memory);
                    } else {
                        block.compute::<_, _, 2>(simd, step, &self.fillings, memory);
                    }
                } else if size_of::<S::f64s>() >= LONG {
                    step.run::<true>(memory, block);
                } else {
                    step.run::<false>(memory, block);
                }
            }
            first += count;
        }
    }
}

/// The elements of a block, and where its numbers are in memory.
#[derive(Clone, Copy)]
struct Block {
    first: usize,
    width: usize,
    /// Where the first register is.
    registers: usize,
    len: usize,
}

impl Block {
    #[inline(always)]
    fn start<T: Real>(self, source: Source<T>) -> usize {
        match source {
            Source::Run(place) => (place + self.first) * self.width,
            Source::Register(register) => self.registers + register * Map::<T>::BLOCK,
            Source::Number(_) | Source::Filling(_) => 0,
        }
    }

    /// Puts numbers into a register.
    #[inline(always)]
    fn fill<T: Real, S: Simd, const V: usize>(self, simd: S, filling: &Filling<T>, register: usize, memory: &mut [T]) {
        let start = self.start::<T>(Source::Register(register));
        let (numbers, rest) = memory.split_at_mut(start);
        let numbers = rows::<T, S, V>(numbers);
        let rows = rows_mut::<T, S, V>(&mut rest[..self.len]).iter_mut();
        match filling {
            Filling::Places(places) => {
                for (row, &place) in rows.zip(&places[self.first..]) {
                    *row = numbers[place as usize];
                }
            }
            Filling::Table(table) => {
                for (row, &number) in rows.zip(&table[self.first..]) {
                    *row = [T::splat(simd, number); V];
                }
            }
        }
    }

    #[inline(always)]
    fn row<T: Real>(self, source: Source<T>, fillings: &[Filling<T>]) -> Row<'_, T> {
        match source {
            Source::Number(number) => Row::All(number),
            Source::Filling(filling) => match &fillings[filling] {
                Filling::Places(places) => Row::Places(&places[self.first..]),
                Filling::Table(table) => Row::Table(&table[self.first..]),
            },
            Source::Run(_) | Source::Register(_) => Row::From(self.start(source) / self.width),
        }
    }

    /// A sum, a difference or a product, with fillings.
    #[inline(always)]
    fn compute<T: Real, S: Simd, const V: usize>(
        self,
        simd: S,
        step: &Step<T>,
        fillings: &[Filling<T>],
        memory: &mut [T],
    ) {
        let start = self.start(step.result);
        let (before, rest) = memory.split_at_mut(start);
        let (out, behind) = rest.split_at_mut(self.len);
        let around = Around { before: rows::<T, S, V>(before), behind: rows(behind), out: out.len() / self.width };
        let out = rows_mut::<T, S, V>(out);
        let [first, second, _] = step.args;
        let (first, second) = (self.row(first, fillings), self.row(second, fillings));
        macro_rules! each {
            ($operation:expr) => {
                for (element, out) in out.iter_mut().enumerate() {
                    let (a, b) = (first.get(simd, &around, element), second.get(simd, &around, element));
                    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                        *out = $operation(a, b);
                    }
                }
            };
        }
        match step.instruction {
            Instruction::Add => each!(|a, b| T::plus(simd, a, b)),
            Instruction::Sub => each!(|a, b| T::plus(simd, a, T::negated(simd, b))),
            _ => each!(|a, b| T::times(simd, a, b)),
        }
    }
}

#[inline(always)]
fn rows<T: Real, S: Simd, const V: usize>(numbers: &[T]) -> &[Numbers<T, S, V>] {
    bytemuck::cast_slice::<T, T::Vector<S>>(numbers).as_chunks().0
}

#[inline(always)]
fn rows_mut<T: Real, S: Simd, const V: usize>(numbers: &mut [T]) -> &mut [Numbers<T, S, V>] {
    bytemuck::cast_slice_mut::<T, T::Vector<S>>(numbers).as_chunks_mut().0
}

/// Where the numbers of each element of a block are.
#[derive(Clone, Copy)]
enum Row<'m, T> {
    /// From this place on.
    From(usize),
    Places(&'m [u32]),
    Table(&'m [T]),
    All(T),
}

/// Memory but for where a result goes.
struct Around<'m, N> {
    before: &'m [N],
    behind: &'m [N],
    /// How many places there are in between.
    out: usize,
}

impl<N: Copy> Around<'_, N> {
    #[inline(always)]
    fn at(&self, place: usize) -> N {
        if place < self.before.len() { self.before[place] } else { self.behind[place - self.before.len() - self.out] }
    }
}

impl<T: Real> Row<'_, T> {
    /// The numbers of an element.
    #[inline(always)]
    fn get<S: Simd, const V: usize>(
        self,
        simd: S,
        around: &Around<Numbers<T, S, V>>,
        element: usize,
    ) -> Numbers<T, S, V> {
        match self {
            Self::From(first) => around.at(first + element),
            Self::Places(places) => around.at(places[element] as usize),
            Self::Table(table) => [T::splat(simd, table[element]); V],
            Self::All(number) => [T::splat(simd, number); V],
        }
    }
}

/// The numbers that a step takes.
#[derive(Clone, Copy)]
enum Arg<'m, T> {
    Each(&'m [T]),
    All(T),
}

impl<T: Real> Step<T> {
    /// Puts what it computes of a block into its result.
    #[expect(clippy::too_many_lines, reason = "a line for each instruction")]
    #[inline(always)]
    fn run<const FUSED: bool>(&self, memory: &mut [T], block: Block) {
        use Instruction as I;
        let is = |truth: bool| if truth { T::ONE } else { T::default() };
        let Self { instruction, result, args } = self;
        let zero = T::default();
        let start = block.start(*result);
        let (before, rest) = memory.split_at_mut(start);
        let (out, behind) = rest.split_at_mut(block.len);
        let arg = |number: usize| match args[number] {
            Source::Number(number) => Arg::All(number),
            // Not here: see `Block::compute`.
            Source::Filling(_) => Arg::All(zero),
            source => {
                let first = block.start(source);
                let numbers = if first < start { &before[first..] } else { &behind[first - start - block.len..] };
                Arg::Each(&numbers[..block.len])
            }
        };
        macro_rules! of_one {
            ($x:ident => $value:expr) => {
                match arg(0) {
                    Arg::Each(numbers) => {
                        for (out, &$x) in out.iter_mut().zip(numbers) {
                            *out = $value;
                        }
                    }
                    Arg::All($x) => out.fill($value),
                }
            };
        }
        macro_rules! of_two {
            ($x:ident, $y:ident => $value:expr) => {
                match (arg(0), arg(1)) {
                    (Arg::Each(first), Arg::Each(second)) => {
                        for ((out, &$x), &$y) in out.iter_mut().zip(first).zip(second) {
                            *out = $value;
                        }
                    }
                    (Arg::Each(first), Arg::All($y)) => {
                        for (out, &$x) in out.iter_mut().zip(first) {
                            *out = $value;
                        }
                    }
                    (Arg::All($x), Arg::Each(second)) => {
                        for (out, &$y) in out.iter_mut().zip(second) {
                            *out = $value;
                        }
                    }
                    (Arg::All($x), Arg::All($y)) => out.fill($value),
                }
            };
        }
        match *instruction {
            I::Add => of_two!(x, y => x + y),
            I::Sub => of_two!(x, y => x - y),
            I::Mul => of_two!(x, y => x * y),
            I::Div => of_two!(x, y => x / y),
            I::Max => of_two!(x, y => if x > y || T::is_nan(x) { x } else { y }),
            I::Min => of_two!(x, y => if x < y || T::is_nan(x) { x } else { y }),
            I::Less => of_two!(x, y => is(x < y)),
            I::LessEqual => of_two!(x, y => is(x <= y)),
            I::Greater => of_two!(x, y => is(x > y)),
            I::GreaterEqual => of_two!(x, y => is(x >= y)),
            I::Equal => of_two!(x, y => is(x == y)),
            I::NotEqual => of_two!(x, y => is(x != y)),
            I::And => of_two!(x, y => is(x != zero && y != zero)),
            I::Or => of_two!(x, y => is(x != zero || y != zero)),
            I::Atan2 => of_two!(y, x => T::atan2(y, x)),
            I::Neg => of_one!(x => -x),
            I::Abs => of_one!(x => T::abs(x)),
            I::Sign => of_one!(x => if x > zero { T::ONE } else if x < zero { -T::ONE } else { x }),
            I::SignBit => of_one!(x => is(T::is_negative(x))),
            I::Not => of_one!(x => is(x == zero)),
            I::IsFinite => of_one!(x => is(T::is_finite(x))),
            I::Square => of_one!(x => x * x),
            I::Reciprocal => of_one!(x => T::ONE / x),
            I::Sqrt => of_one!(x => T::sqrt(x)),
            I::Rsqrt => of_one!(x => T::ONE / T::sqrt(x)),
            I::Exp => of_one!(x => T::exp::<FUSED>(x)),
            I::ExpM1 => of_one!(x => T::exp_m1::<FUSED>(x)),
            I::Ln => of_one!(x => T::ln::<FUSED>(x)),
            I::Ln1p => of_one!(x => T::ln_1p::<FUSED>(x)),
            I::Sin => {
                of_one!(x => T::sin_cos(x).0);
                of_large_angles(out, arg(0), |x| T::sin_cos_of_any(x).0);
            }
            I::Cos => {
                of_one!(x => T::sin_cos(x).1);
                of_large_angles(out, arg(0), |x| T::sin_cos_of_any(x).1);
            }
            I::Sinh => of_one!(x => functions::sinh::<T, FUSED>(x)),
            I::Cosh => of_one!(x => functions::cosh::<T, FUSED>(x)),
            I::Select => select(out, arg(0), arg(1), arg(2)),
            I::Tanh => of_one!(x => T::tanh::<FUSED>(x)),
            I::Sigmoid => of_one!(x => T::sigmoid::<FUSED>(x)),
            I::Softplus => of_one!(x => T::softplus::<FUSED>(x)),
            I::Relu => of_one!(x => T::relu(x)),
            I::Gelu => of_one!(x => functions::gelu::<T, FUSED>(x)),
            I::Silu => of_one!(x => x * T::sigmoid::<FUSED>(x)),
            I::LogCosh => of_one!(x => functions::log_cosh::<T, FUSED>(x)),
            I::Elu => of_one!(x => functions::elu::<T, FUSED>(x)),
            I::Selu => of_one!(x => functions::selu::<T, FUSED>(x)),
            I::Remainder => of_two!(x, y => x - y * T::truncated(x / y)),
            I::Quotient => of_two!(x, y => T::truncated(x / y)),
            I::Copy => of_one!(x => x),
        }
    }
}

/// Writes a function of the angles that are too large for [`Functions::sin_cos`](crate::numbers::Functions::sin_cos).
#[inline(always)]
fn of_large_angles<T: Real>(out: &mut [T], angles: Arg<T>, function: impl Fn(T) -> T) {
    let limit = T::nearest(*T::ANGLES.end());
    match angles {
        Arg::Each(angles) => {
            // Most often there are none.
            if angles.iter().all(|&x| T::abs(x) <= limit) {
                return;
            }
            for (out, &x) in out.iter_mut().zip(angles) {
                if T::abs(x) > limit {
                    *out = function(x);
                }
            }
        }
        Arg::All(x) if T::abs(x) > limit => out.fill(function(x)),
        Arg::All(_) => {}
    }
}

/// The numbers of `yes` where `which` isn't 0, and those of `no` elsewhere.
#[inline(always)]
fn select<T: Real>(out: &mut [T], which: Arg<T>, no: Arg<T>, yes: Arg<T>) {
    let numbers = match which {
        Arg::Each(numbers) => numbers,
        Arg::All(number) => {
            match if number == T::default() { no } else { yes } {
                Arg::Each(numbers) => out.copy_from_slice(numbers),
                Arg::All(number) => out.fill(number),
            }
            return;
        }
    };
    let rows = out.iter_mut().zip(numbers);
    let pick = |which: T, no: T, yes: T| if which == T::default() { no } else { yes };
    match (no, yes) {
        (Arg::Each(no), Arg::Each(yes)) => {
            for (((out, &which), &no), &yes) in rows.zip(no).zip(yes) {
                *out = pick(which, no, yes);
            }
        }
        (Arg::Each(no), Arg::All(yes)) => {
            for ((out, &which), &no) in rows.zip(no) {
                *out = pick(which, no, yes);
            }
        }
        (Arg::All(no), Arg::Each(yes)) => {
            for ((out, &which), &yes) in rows.zip(yes) {
                *out = pick(which, no, yes);
            }
        }
        (Arg::All(no), Arg::All(yes)) => {
            for (out, &which) in rows {
                *out = pick(which, no, yes);
            }
        }
    }
}
