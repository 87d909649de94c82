"""The kernels' machine in NumPy, readable and slow: it evaluates the words of a program."""

import numpy as np

from ferroket.network.numbers import FUNCTIONS, INSTRUCTIONS

_ARGUMENTS = 3


def evaluate(words: np.ndarray, tables: np.ndarray, inputs: np.ndarray) -> np.ndarray:
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
        else:
            _map(take, memory, tables)
            continue
        memory[out : out + made.size // len(inputs)] = made.reshape(-1, len(inputs))
    assert next(stream, None) is None
    return memory[results].T


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
