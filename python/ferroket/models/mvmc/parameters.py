"""Parameters in mVMC's order: where the numbers of its files are among those of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ferroket.models.mvmc.files import read_definition, read_lines

_ENERGIES = 6
"""How many numbers there are before the parameters: ⟨H⟩ and ⟨H²⟩, each as a complex number and its variance."""

_PER_PARAMETER = 3
"""A parameter is its real part, its imaginary part and its variance."""


@dataclass(frozen=True)
class Block:
    """Parameters that have a file of their own."""

    keyword: str
    """Of the file in the list of files."""
    header: str
    """What the second line of the file calls the number of parameters."""
    count: int
    """That number; doublon-holon factors have several parameters for each that is counted."""
    size: int
    """How many numbers there are."""
    name: str
    """What mVMC calls the file, without the head that all files of parameters have in common."""


@dataclass(frozen=True, eq=False)
class Layout:
    """All parameters of a wave function in mVMC's order."""

    blocks: tuple[Block, ...]
    places: Mapping[tuple[str, str], np.ndarray]
    """Where the numbers of each of the model's parameters are, by the names of its module and its own."""
    is_complex: Mapping[tuple[str, str], bool]
    """Whether they are complex; what is real for mVMC has no imaginary parts."""

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return sum(block.size for block in self.blocks)

    def tree(self, values: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
        """Numbers in mVMC's order, ``(n,)``, as the model has them."""
        found: dict[str, dict[str, np.ndarray]] = {}
        for (module, name), places in self.places.items():
            found.setdefault(module, {})[name] = values[places]
        return found

    def variables(self, values: np.ndarray) -> dict[str, Any]:
        """The model's variables of complex numbers in mVMC's order, ``(n,)``."""
        params = self.tree(values)
        for (module, name), is_complex in self.is_complex.items():
            leaf = params[module][name]
            params[module][name] = leaf if is_complex else leaf.real.copy()
        return {"params": params}

    def values(self, params: Any) -> np.ndarray:
        """The other way round.

        Raises:
            ValueError: There are other parameters.
        """
        values = np.zeros(self.size, complex)
        expected = {name: places.shape for name, places in self.places.items()}
        found = {(module, name): np.shape(leaf) for module, leaves in params.items() for name, leaf in leaves.items()}
        if found != expected:
            raise ValueError(f"the parameters of this state are {expected}, but got {found}")
        for (module, name), places in self.places.items():
            values[places] = np.asarray(params[module][name])
        if not np.isfinite(values).all():
            raise ValueError(f"parameters are finite numbers, but {np.sum(~np.isfinite(values))} of them aren't")
        return values


def read_all(path: Path, layout: Layout) -> np.ndarray:
    """All parameters of a file of energies and parameters, such as ``zqp_opt.dat``, ``(n,)``.

    Of several lines, which ``zvo_var_001.dat`` has, the last one is taken, as mVMC takes it.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line has another number of numbers, or some that aren't finite.
    """
    expected = _ENERGIES + _PER_PARAMETER * layout.size
    lines = [line for line in read_lines(path) if line.words]
    if not lines:
        raise ValueError(f"{path}: the file has no parameters")
    last = lines[-1]
    if len(last.words) != expected:
        raise ValueError(
            f"{path}, line {last.number}: {layout.size} parameters are {expected} numbers, {_ENERGIES} of energies "
            f"and {_PER_PARAMETER} of each parameter, but there are {len(last.words)}: take the file that belongs to "
            "these definition files"
        )
    try:
        values = np.array(last.words[_ENERGIES:], float).reshape(-1, _PER_PARAMETER)
    except ValueError:
        raise ValueError(f"{path}, line {last.number}: some of the words aren't numbers") from None
    _check_finite(values[:, :2], path, last.number)
    result: np.ndarray = values[:, 0] + 1j * values[:, 1]
    return result


def read_block(path: Path, block: Block) -> np.ndarray:
    """The parameters of one block, ``(n,)``.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It has another number of parameters, or one of them isn't there once, or isn't finite.
    """
    definition = read_definition(path)
    if definition.count != block.count:
        raise ValueError(
            f"{path}, line 2: the definition files have {block.count} for {block.header}, but this file has "
            f"{definition.count}"
        )
    (lines,) = definition.take(block.size)
    values = np.full(block.size, np.nan, complex)
    for line in lines:
        (number,) = line.integers(1, "a number of a parameter, and its real and imaginary part")
        if not 0 <= number < block.size or not np.isnan(values[number]):
            raise line.wrong(f"each of the parameters from 0 to {block.size - 1} is there once")
        values[number] = complex(*line.reals(1, 2, "a number of a parameter, and its real and imaginary part"))
    return values


def write_all(path: Path, values: np.ndarray) -> None:
    """Writes what :func:`read_all` reads, with energies and variances of 0."""
    columns = np.stack([values.real, values.imag, np.zeros(len(values))], axis=1)
    numbers = np.concatenate([np.zeros(_ENERGIES), columns.reshape(-1)])
    path.write_text(" ".join(f"{number: .18e}" for number in numbers) + "\n", encoding="utf-8")


def write_block(path: Path, block: Block, values: np.ndarray) -> None:
    """Writes what :func:`read_block` reads."""
    rule = "=" * 22
    lines = [rule, f"{block.header}  {block.count}", rule, rule, rule]
    lines += [f"{number} {value.real: .18e} {value.imag: .18e}" for number, value in enumerate(values)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _check_finite(values: np.ndarray, path: Path, number: int) -> None:
    if not np.isfinite(values).all():
        wrong = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise ValueError(f"{path}, line {number}: parameter {wrong} isn't finite: the optimisation has failed")
