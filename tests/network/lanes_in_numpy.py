"""The kernels' machine in NumPy, readable and slow: it evaluates the words of a program."""

import numpy as np

from ferroket.ffi import INSTRUCTIONS
from ferroket.network.numbers import FUNCTIONS

_ARGUMENTS = 3


def evaluate(words: np.ndarray, tables: np.ndarray, inputs: np.ndarray) -> np.ndarray:  # noqa: PLR0912, PLR0915 - a case for each operation
    """The results for inputs ``(C, H)``, one behind the other."""
    stream = iter(words.tolist())

    def take(count: int | None = None) -> np.ndarray | int:
        return next(stream) if count is None else np.array([next(stream) for _ in range(count)], int)

    n_inputs, first, n_results = take(), take(), take()
    results = take(n_results)
    size, n_tables, n_operations = take(), take(), take()
    assert len(tables) == n_tables
    memory = np.full((size, len(inputs)), np.nan, inputs.dtype)
    memory[first : first + n_inputs] = inputs.T
    for _ in range(n_operations):
        code = take()
        if code == 0:
            groups, positions, width, depth, length, out, offset = (take() for _ in range(7))
            bias = tables[take(groups * width)].reshape(groups, 1, width) if take() else np.zeros((1, 1, 1))
            taps = take(groups * positions * depth // length).reshape(groups, positions, -1)
            places = (taps[..., None] + np.arange(length)).reshape(groups, positions, depth)
            weights = tables[offset : offset + groups * depth * width].reshape(groups, depth, width)
            made = bias[..., None] + np.einsum("gpjc,gjm->gpmc", memory[places], weights)
        elif code == 1:
            batch, left, right, depth, kind, step, out = (take() for _ in range(7))
            of_left = take(batch * left * depth).reshape(batch, left, depth)
            if kind == 0:
                of_right = take(batch * right).reshape(batch, right, 1) + step * np.arange(depth)
            else:
                of_right = take(batch * right * depth).reshape(batch, right, depth)
            made = np.einsum("bikc,bjkc->bijc", memory[of_left], memory[of_right])
        elif code == 2:
            rows, depth, kind, out = (take() for _ in range(4))
            function = (np.add, np.maximum, np.minimum, np.multiply)[kind]
            made = function.reduce(memory[take(rows * depth).reshape(rows, depth)], axis=1)
        elif code == 3:
            _map(take, memory, tables)
            continue
        elif code == 4:
            _lu(take, memory)
            continue
        elif code == 5:
            batch, n, columns, parts, has_ones, out = (take() for _ in range(6))
            matrix = _numbers(memory, take(batch * n * n * parts).reshape(batch, n, n, parts))
            right = _numbers(memory, take(batch * n * columns * parts).reshape(batch, n, columns, parts))
            made = _parts(np.vectorize(_solved, signature="(n,n),(n,m),()->(n,m)")(matrix, right, has_ones), parts)
        elif code == 6:
            batch, n, parts, out = (take() for _ in range(4))
            matrices = _numbers(memory, take(batch * n * n * parts).reshape(batch, n, n, parts))
            made = _parts(np.vectorize(_factors, signature="(n,n)->(m)")(matrices), parts)
        elif code == 7:
            rows, choices, columns, has_limits, n_tables, out = (take() for _ in range(6))
            index, table = take(rows), take(rows)
            of_tables = take(n_tables * choices * columns).reshape(n_tables, choices, columns)
            wanted = memory[index].astype(int)
            found = of_tables[table[:, None], wanted.clip(0, choices - 1)]  # (rows, C, columns)
            made = np.moveaxis(memory[found, np.arange(len(inputs))[:, None]], 1, 2)
            if has_limits:
                made[np.broadcast_to(((wanted < 0) | (wanted >= choices))[:, None], made.shape)] = np.nan
        elif code == 9:
            rows, choices, depth, columns, has_limits, out = (take() for _ in range(6))
            wanted, x, offset = memory[take(rows)], memory[take(depth)], take()
            weights = tables[offset : offset + choices * depth * columns].reshape(choices, depth, columns)
            bias = sum((tables[take(choices * columns)].reshape(choices, columns) for _ in range(take())), np.zeros(1))
            bias = np.broadcast_to(bias, (choices, columns))
            chosen = wanted.astype(int).clip(0, choices - 1)
            made = np.moveaxis(bias[chosen], 1, 2) + np.einsum("jc,rcjm->rmc", x, weights[chosen])
            if has_limits:
                made[np.broadcast_to(((wanted < 0) | (wanted >= choices))[:, None], made.shape)] = np.nan
        else:
            rows, choices, columns, has_limits, n_tables, n, out = (take() for _ in range(7))
            index, table = memory[take(rows)], take(rows)
            targets = take(n_tables * choices * columns).reshape(n_tables, choices, columns)
            values = memory[take(rows * columns)].reshape(rows, columns, -1)
            made = np.zeros((n, len(inputs)), memory.dtype)
            for row, lane in np.ndindex(rows, len(inputs)):
                wanted = index[row, lane]
                if not has_limits or 0 <= wanted < choices:
                    choice = int(np.clip(wanted, 0, choices - 1))
                    np.add.at(made[:, lane], targets[table[row], choice], values[row, :, lane])
        memory[out : out + made.size // len(inputs)] = made.reshape(-1, len(inputs))
    assert next(stream, None) is None
    return memory[results].T


def _numbers(memory: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Real or complex numbers of places ``(..., parts)``, with those of all configurations in front."""
    parts = np.moveaxis(memory[places], -1, 0)
    return parts[..., 0] + 1j * parts[..., 1] if parts.shape[-1] > 1 else parts[..., 0]


def _parts(numbers: np.ndarray, parts: int) -> np.ndarray:
    """As they are in memory, those of all configurations behind."""
    return np.moveaxis(np.stack([numbers.real, numbers.imag][:parts], axis=-1), 0, -1)


def _lu(take, memory) -> None:
    batch, n, parts, of_diagonals, has_triangles = (take() for _ in range(5))
    of_triangles = take() if has_triangles else None
    matrices = _numbers(memory, take(batch * n * n * parts).reshape(batch, n, n, parts))
    for number in range(batch):
        for lane, matrix in enumerate(matrices[:, number]):
            lu, pivots, order = _decomposed(matrix)
            written = np.concatenate(
                [pivots, order, np.stack([lu.diagonal().real, lu.diagonal().imag][:parts], 1).ravel()]
            )
            memory[of_diagonals + number * len(written) :][: len(written), lane] = written
            if has_triangles:
                written = np.stack([lu.real, lu.imag][:parts], axis=-1).ravel()
                memory[of_triangles + number * len(written) :][: len(written), lane] = written


def _decomposed(matrix: np.ndarray) -> tuple[np.ndarray, list[int], list[int]]:
    """L and U of a matrix, the row that was exchanged with each, and the order of the rows."""
    lu, pivots, order = matrix.copy(), [], list(range(len(matrix)))
    for column in range(len(lu)):
        below = lu[column:, column]
        pivot = column + int(np.argmax(abs(below.real) + abs(below.imag)))
        pivots.append(pivot)
        lu[[column, pivot]] = lu[[pivot, column]]
        order[column], order[pivot] = order[pivot], order[column]
        if lu[column, column]:
            lu[column + 1 :, column] /= lu[column, column]
        lu[column + 1 :, column + 1 :] -= np.outer(lu[column + 1 :, column], lu[column, column + 1 :])
    return lu, pivots, order


def _solved(matrix: np.ndarray, right: np.ndarray, has_ones: int) -> np.ndarray:
    matrix = np.tril(matrix)
    if has_ones:
        np.fill_diagonal(matrix, 1)
    return np.linalg.solve(matrix, right)


def _factors(matrix: np.ndarray) -> np.ndarray:
    """Numbers whose product is the Pfaffian of what is below the diagonal."""
    a = np.tril(matrix, -1)
    a = a - a.T
    factors = []
    while len(a):
        pivot = 1 + int(np.argmax(abs(a[0, 1:].real) + abs(a[0, 1:].imag)))
        order = list(range(len(a)))
        order[1], order[pivot] = order[pivot], order[1]
        a = a[np.ix_(order, order)]
        factors.append(a[0, 1] if pivot == 1 else -a[0, 1])
        outer = np.outer(a[0], a[1]) / a[0, 1] if a[0, 1] else np.zeros_like(a)
        a = (a + outer.T - outer)[2:, 2:]
    return np.array(factors)


def _map(take, memory, tables) -> None:
    n, n_operands, n_registers = (take() for _ in range(3))
    registers: list = [None] * n_registers
    for register in range(n_operands):
        match take():
            case 0:
                first = take()
                registers[register] = memory[first : first + n]
            case 1:
                registers[register] = memory[take(n)]
            case 2:
                registers[register] = tables[take(n), None]
            case _:
                registers[register] = tables[take()]
    for _ in range(take()):
        code, result, *args = (take() for _ in range(2 + _ARGUMENTS))
        function = FUNCTIONS[INSTRUCTIONS[code]]
        registers[result] = np.asarray(function(*(registers[arg] for arg in args[: arity(function)])), memory.dtype)
    for _ in range(take()):
        register, out = take(), take()
        memory[out : out + n] = registers[register]


def arity(function) -> int:
    return function.nin if isinstance(function, np.ufunc) else function.__code__.co_argcount
