"""States of mVMC as those of NetKet, and back."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ferroket.models.mvmc.files import PARAMETERS, read_namelist
from ferroket.models.mvmc.hamiltonian import read_hamiltonian
from ferroket.models.mvmc.parameters import Block, Layout, read_all, read_block, write_all, write_block
from ferroket.models.mvmc.wave_function import read_settings, read_wave_function
from ferroket.models.product import Product

_OF_UNEQUAL_SPINS = {"inorbital", "inorbitalantiparallel"}
"""Two names of the parameters of pairs of unequal spins."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """What mVMC's files say: a space, a Hamiltonian on it, and a wave function."""

    hilbert: Any
    """The :class:`netket.hilbert.SpinOrbitalFermions`. Spin σ on site i is mode i + σ L, with mVMC's σ of 0 and 1. If
    there are local spins, its :class:`~ferroket.hilbert.SiteOccupations` keep one fermion on each of their sites."""

    hamiltonian: Any
    """The :class:`~ferroket.operator.FermionOperator2nd`, or None if the list of files names no terms."""

    model: Product
    """A :class:`~ferroket.models.PairProduct` and the factors that there are files of, in this order:
    :class:`~ferroket.models.Gutzwiller`, :class:`~ferroket.models.DensityJastrow`,
    :class:`~ferroket.models.DoublonHolon`."""

    variables: Any
    """The model's variables; or None if there is no file of parameters: then NetKet initialises them."""

    optimised: Any
    """Whether mVMC optimises each of the parameters, a tree of booleans as the parameters are. A driver optimises all
    of them, unless it is told: ``optax.masked`` takes such a tree."""

    layout: Layout
    """Where the parameters are in mVMC's files."""


def load(namelist: str | PathLike[str], parameters: str | PathLike[str] | None = None) -> Loaded:
    """Reads a state of mVMC, so that it goes on here.

    Read are the files of the Hamiltonian (``Trans``, ``CoulombIntra``, ``CoulombInter``, ``Hund``, ``PairHop``,
    ``Exchange``, ``InterAll``), of the wave function (``Gutzwiller``, ``Jastrow``, ``DH2``, ``DH4``, ``Orbital``,
    ``OrbitalAntiParallel``, ``OrbitalParallel``, ``OrbitalGeneral``, ``TransSym``) and of initial parameters
    (``InGutzwiller`` and so on), of ``LocSpin`` the sites of local spins, and of ``modpara.def`` the number of sites
    and electrons, 2 S_z, and the projections. The state is the same up to a factor, which mVMC changes, too.

    A local spin is a site with one fermion. ``Ncond`` counts the electrons on the other sites, ``Nelectron`` the pairs
    of all fermions. Chains need moves that exchange spins: those of ``fk.sampler.MetropolisSiteExchange``, or of
    ``fk.sampler.MetropolisHamiltonian``, which flips spins, too, if the Hamiltonian does.

    As in mVMC a file of parameters that the list names has precedence; correlation factors without parameters are 0;
    and with real parameters the weights of ``TransSym`` are their real parts.

    Args:
        namelist: The list of files, ``namelist.def``. Those that it names are relative to its folder.
        parameters: A file of all parameters, ``output/zqp_opt.dat``, mVMC's second argument; or ``zvo_var_001.dat``,
            of which the last line is read.

    Returns:
        The state, for ``nk.vqs.MCState(sampler, loaded.model, variables=loaded.variables)``.

    Raises:
        FileNotFoundError: A file isn't there.
        ValueError: A file isn't as mVMC reads it, or doesn't fit the others. The message says which line.
        NotImplementedError: There are restricted Boltzmann machines, backflow, or optimised weights of a projection.
    """
    path = Path(namelist)
    files = read_namelist(path)
    if "modpara" not in files:
        raise ValueError(f"{path}: there is no entry ModPara")
    settings = read_settings(files["modpara"], files.get("locspin"))
    hilbert, model, layout, optimised = read_wave_function(files, settings)
    values = _values(files, None if parameters is None else Path(parameters), layout)
    return Loaded(
        hilbert,
        read_hamiltonian(files, hilbert, settings.is_local),
        model,
        None if values is None else layout.variables(values),
        layout.tree(optimised),
        layout,
    )


def save(folder: str | PathLike[str], loaded: Loaded, variables: Any, *, head: str = "zqp") -> dict[str, Path]:
    """Writes parameters to files that mVMC reads, for the definition files that a state was loaded from.

    ``zqp_opt.dat`` has all of them, for mVMC's second argument; energies and variances in it, which mVMC doesn't read,
    are 0. The others have one kind of parameters each.

    Args:
        folder: Where to write. It is made if it isn't there.
        loaded: What :func:`load` gave.
        variables: The variables of its model, such as ``state.variables``.
        head: What the names of the files begin with.

    Returns:
        The files of one kind of parameters by their keywords in the list of files, ``InGutzwiller`` and so on.

    Raises:
        ValueError: The variables aren't those of this model, or not all are finite.
    """
    values = loaded.layout.values(variables["params"])
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_all(target / f"{head}_opt.dat", values)
    written = {}
    for block, part in _parts(loaded.layout, values):
        written[block.keyword] = target / f"{head}_{block.name}"
        write_block(written[block.keyword], block, part)
    return written


def _parts(layout: Layout, values: np.ndarray) -> list[tuple[Block, np.ndarray]]:
    """The blocks, each with its numbers."""
    ends = np.cumsum([block.size for block in layout.blocks])
    return list(zip(layout.blocks, np.split(values, ends[:-1]), strict=True))


def _values(files: dict[str, Path], parameters: Path | None, layout: Layout) -> np.ndarray | None:
    """All parameters, or None if there is no file of them.

    Raises:
        FileNotFoundError: A file isn't there.
        ValueError: A file doesn't fit, or there are parameters of correlations, but none of pairs.
    """
    named = {keyword for keyword in PARAMETERS if keyword in files}
    if parameters is None and not named:
        return None
    values = np.full(layout.size, np.nan, complex) if parameters is None else read_all(parameters, layout)
    for block, part in _parts(layout, values):
        keywords = {block.keyword.lower()}
        if keywords & _OF_UNEQUAL_SPINS:
            keywords = _OF_UNEQUAL_SPINS
            if keywords <= named:
                raise ValueError(
                    "the list of files has InOrbital and InOrbitalAntiParallel, which are the same parameters: leave "
                    "one of them out"
                )
        for keyword in keywords & named:
            part[:] = read_block(files[keyword], block)
            named.remove(keyword)
        if np.isnan(part).any():
            if "Orbital" in block.keyword:
                raise ValueError(
                    f"the list of files has no entry {block.keyword}, and there is no file of all parameters: pairs "
                    "have no parameters"
                )
            part[:] = 0
    if named:
        raise ValueError(f"the list of files has parameters {sorted(named)} of what isn't part of the wave function")
    return values
