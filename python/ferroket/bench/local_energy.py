"""``ferroket bench local-energy``: local energies, beside those of NetKet's kernels and the bare network."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import netket.jax as nkjax
import numpy as np
from netket.vqs import MCState, get_local_kernel
from netket.vqs.mc import kernels

from ferroket._compat.netket import log_psi_of
from ferroket.bench import jobs, models
from ferroket.bench.beside import all_cores, two_ranks
from ferroket.bench.cases import Chosen
from ferroket.bench.cases import run as run_cases
from ferroket.bench.hamiltonians import fermi_hubbard, heisenberg, ising, kagome
from ferroket.bench.report import Report, Row
from ferroket.bench.states import DETERMINANTS
from ferroket.bench.timing import on_cores, paired, peak_rate, seconds
from ferroket.distributed import affinity
from ferroket.operator import accelerate

try:
    from netket.vqs.mc.kernels_packed import local_value_kernel_jax_packed
except ImportError:
    local_value_kernel_jax_packed = None

OURS, DEFAULT, PACKED, BARE = "Ferroket", "NetKet", "NetKet packed", "bare network"
_DOUBLE, _PEAK = "float64", "FMA peak"
_CORES_BAR, _RANKS_BAR, _SINGLE_BAR = 1.7, 1.8, 1.6
# Ours may take 1.15 times the time of the bare network on exactly the configurations that matter.
_BARE_BAR = 1 / 1.15
# How many times faster than NetKet's fastest local energies of networks have to be.
_NETWORK_BARS = {
    **{"MLP": 1.7, "ResCNN": 15.0, "ResCNN, 16 features": 25.0, "GCNN": 30.0},
    **{"ViT": 40.0, "ViT, 32 features, 4 layers": 20.0, "complex MLP": 10.0, "complex ResCNN": 10.0},
}
# Where a call takes more seconds than this, one call is enough to compare.
_LONG = 0.5
# The chunk sizes of which each peer takes its fastest.
_CHUNK_SIZES = (None, 64, 256, 1024, 2048, 8192)
# Larger chunks of determinants are no faster.
DETERMINANT_CHUNK_SIZES = (64, 256, 1024)
_TIMEOUT = 1800


def _rbm(alpha: int, dtype: Any = float) -> Callable[[], Any]:
    return lambda: nk.models.RBM(alpha=alpha, param_dtype=dtype)


# By name: the operator, the model, and how many times faster than NetKet's fastest it has to be, but for determinants.
KNOWN: dict[str, tuple[Callable[[], Any], Callable[[], Any], float | None]] = {
    "Ising chain 64, RBM α=1": (partial(ising, 64), _rbm(1), 20),
    "Ising chain 64, RBM α=4": (partial(ising, 64), _rbm(4), 25),
    "Ising chain 80, RBM α=2": (partial(ising, 80), _rbm(2), 20),
    "Heisenberg 10×10, RBM α=1": (partial(heisenberg, total_sz=0), _rbm(1), 20),
    "Heisenberg kagome 75, RBM α=1": (kagome, _rbm(1), 20),
    "Heisenberg 10×10, complex RBM α=4": (partial(heisenberg, total_sz=0), _rbm(4, complex), 40),
    "Heisenberg 10×10, RBM α=4, float32": (partial(heisenberg, total_sz=0), _rbm(4, np.float32), None),
    "Heisenberg 10×10, RBMModPhase α=1": (
        partial(heisenberg, total_sz=0),
        lambda: nk.models.RBMModPhase(alpha=1),
        None,
    ),
    "Fermi-Hubbard 4×4, RBM α=2": (lambda: fermi_hubbard((4, 4)), _rbm(2), 10),
    "Heisenberg 10×10, Jastrow": (partial(heisenberg, total_sz=0), lambda: nk.models.Jastrow(param_dtype=float), 10),
}

# By name: the operator, and the shape and the number of species of its lattice, for the networks.
LATTICES: dict[str, tuple[Callable[[], Any], tuple[int, int], int]] = {
    "Heisenberg 10×10": (partial(heisenberg, total_sz=0), (10, 10), 1),
    "Fermi-Hubbard 8×8": (fermi_hubbard, (8, 8), 2),
}


def run(*, cases: Chosen = None, batch: int = 1024, rounds: int = 5) -> Report:
    """Local energies of models whose amplitude ratios are known, and of any network.

    NetKet's kernels, and the bare network, have the best of several chunk sizes; ours has the default. Ours is
    compared with itself, on other numbers, cores or ranks, for Heisenberg 10×10 with an RBM of α=4; on two ranks also
    with an MLP.

    Args:
        cases: a part of the name of those to run, or several; all by default.
        batch: the number of samples.
        rounds: how many times each contender is measured.

    Raises:
        ValueError: no case has such a name; the batch has no sample.
        AssertionError: NetKet's local energies are others.
    """
    found: dict[str, Callable[[str], Iterator[Row]]] = {}
    for name, (build, model, bar) in KNOWN.items():
        found[name] = partial(_known, build, model, bar, batch, rounds)
    for name, (_, bar) in DETERMINANTS.items():
        found[name] = partial(_determinants, bar, batch, rounds)
    for lattice, (build, shape, species) in LATTICES.items():
        for network, of_model in models.networks(shape, species).items():
            bar = _NETWORK_BARS.get(network, 1.0) if species == 1 else 1.0
            found[f"{lattice}, {network}"] = partial(_network, build, of_model, bar, batch, rounds)
    found[_SINGLE] = partial(_single, batch, rounds)
    if affinity.can_bind() and len(affinity.allowed()) > 1:
        found[_CORES] = partial(_cores, batch, rounds)
        for which in ("RBM", "MLP"):
            found[f"{_RANKS}, {which}"] = partial(_ranks, which, batch, rounds)
    if affinity.can_bind():
        found[_FLOPS] = partial(_flops, batch, rounds)
    title = f"local energies of {batch} samples"
    rows = run_cases(found, cases=cases, batch=batch)
    return Report(title, OURS, rows, {"cases": cases, "batch": batch, "rounds": rounds})


class _Setup:
    """An operator of NetKet's, ours, a model, and samples."""

    def __init__(self, reference: Any, model: Any, batch: int, netkets: Any = None) -> None:
        hilbert = reference.hilbert
        self.reference, self.ours = reference, accelerate(reference)
        self.x = hilbert.random_state(jax.random.key(0), batch).astype("int8")
        self.state = MCState(nk.sampler.MetropolisLocal(hilbert, n_chains=16), model, n_samples=16, seed=1)
        self.logpsi = log_psi_of(self.state)
        self.netkets_logpsi = self.logpsi if netkets is None else netkets.apply

    def call(self, kernel: Callable[..., Any], operator: Any, **options: Any) -> Callable[[], Any]:
        """A call of a kernel."""
        logpsi = self.logpsi if operator is self.ours else self.netkets_logpsi
        function = jax.jit(partial(kernel, logpsi, **options))
        return lambda: jax.block_until_ready(function(self.state.variables, self.x, operator))

    def ours_call(self) -> Callable[[], Any]:
        """A call of the kernel that NetKet's states take for our operators."""
        return self.call(get_local_kernel(self.state, self.ours), self.ours)

    def netkets(self, sizes: Sequence[int | None]) -> dict[str, Callable[[], Any]]:
        """NetKet's kernels, each with its best chunk size of some."""
        padded = [
            self.call(kernels.local_value_kernel_jax, self.reference)
            if size is None
            else self.call(kernels.local_value_kernel_jax_chunked, self.reference, chunk_size=size)
            for size in sizes
        ]
        found = {DEFAULT: _best(padded)}
        if local_value_kernel_jax_packed is not None:
            found[PACKED] = _best(
                [self.call(local_value_kernel_jax_packed, self.reference, chunk_size=size) for size in sizes]
            )
        return found

    def connected(self) -> jax.Array:
        """The samples, and all other configurations with matrix elements that aren't zero."""
        xp, _, sample, _ = self.ours._form.compact(
            self.x, (0, 0), len(self.x) * self.ours.max_conn_size, off_diagonal_only=True
        )
        return jnp.concatenate([self.x, xp[sample < len(self.x)]])

    def compare(self, netkets: Sequence[Callable[[], Any]], tolerance: float) -> None:
        """Raises an :class:`AssertionError` if NetKet's local energies aren't ours."""
        ours = np.asarray(self.ours_call()())
        for call in netkets:
            theirs = np.asarray(call())
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max())


def _best(calls: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    """The fastest of some functions, of which the first call compiles."""

    def fastest(call: Callable[[], Any]) -> float:
        call()
        first = seconds(call)
        return first if first > _LONG else min(seconds(call) for _ in range(3))

    return min(calls, key=fastest)


def _known(
    build: Callable[[], Any], model: Callable[[], Any], bar: float | None, batch: int, rounds: int, name: str
) -> Iterator[Row]:
    """A model whose amplitude ratios are known."""
    times = times_of(build(), model(), batch, rounds, tolerance=1e-4 if "float32" in name else 1e-10)
    yield _row(name, times, bar)


def _determinants(bar: float | None, batch: int, rounds: int, name: str) -> Iterator[Row]:
    """A sum of determinants, or a product with one."""
    times = jobs.run(
        "determinants", 1, "local-energy", name, str(batch), str(rounds), env=jobs.THREADS, timeout=_TIMEOUT
    )
    yield _row(name, times, bar)


def _row(name: str, times: dict[str, float], bar: float | None) -> Row:
    return Row(name, times, bars={} if bar is None else {peer: bar for peer in times if peer != OURS})


def times_of(
    operator: Any,
    model: Any,
    batch: int,
    rounds: int,
    *,
    tolerance: float = 1e-10,
    chunk_sizes: Sequence[int | None] | None = None,
    netkets: Any = None,
) -> dict[str, float]:
    """The seconds that local energies of a known model take, with ours and with NetKet's kernels.

    Args:
        operator: NetKet's.
        model: The model.
        batch: How many samples there are.
        rounds: How many times each contender is measured.
        tolerance: How close NetKet's have to be to ours.
        chunk_sizes: Of which NetKet's kernels have the fastest; by default of some for networks.
        netkets: The same model with the same parameters as NetKet's users have it, where it is another one.

    Raises:
        AssertionError: NetKet's local energies are others.
    """
    setup = _Setup(operator, model, batch, netkets)
    peers = setup.netkets(chunk_sizes or _CHUNK_SIZES)
    setup.compare(list(peers.values()), tolerance)
    return paired({OURS: setup.ours_call(), **peers}, rounds=rounds, warmup=2)


def _network(build: Callable[[], Any], model: Any, bar: float, batch: int, rounds: int, name: str) -> Iterator[Row]:
    """Any network, and how many times faster than NetKet's and than the bare one it has to be."""
    setup = _Setup(build(), model, batch)
    peers = setup.netkets(_CHUNK_SIZES)
    setup.compare(list(peers.values()), 1e-10)
    connected = setup.connected()

    def bare(size: int | None) -> Callable[[], Any]:
        logpsi = setup.logpsi
        if size is not None:
            logpsi = nkjax.apply_chunked(logpsi, in_axes=(None, 0), chunk_size=size)
        function = jax.jit(logpsi)
        return lambda: jax.block_until_ready(function(setup.state.variables, connected))

    contenders = {OURS: setup.ours_call(), **peers, BARE: _best([bare(size) for size in _CHUNK_SIZES[1:]])}
    times = paired(contenders, rounds=rounds, warmup=2)
    yield Row(name, times, bars={**dict.fromkeys(peers, bar), BARE: _BARE_BAR})


_SINGLE = "float32 beside float64"


def _single(batch: int, rounds: int, name: str) -> Iterator[Row]:
    """float32 compared with float64: half the bytes, and twice the numbers in a vector."""
    calls = {
        contender: _Setup(heisenberg(total_sz=0), nk.models.RBM(alpha=4, param_dtype=dtype), batch).ours_call()
        for contender, dtype in ((OURS, np.float32), (_DOUBLE, np.float64))
    }
    yield Row(name, paired(calls, rounds=rounds), bars={_DOUBLE: _SINGLE_BAR})


_CORES = "all cores beside one"


def _cores(batch: int, rounds: int, name: str) -> Iterator[Row]:
    """All cores that the process may use, compared with one core; the bar is for two."""
    call = _Setup(heisenberg(total_sz=0), nk.models.RBM(alpha=4), batch).ours_call()
    yield all_cores(name, OURS, call, rounds=rounds, bar=_CORES_BAR)


_RANKS = "two ranks beside one, each with one core"


def _ranks(model: str, batch: int, rounds: int, name: str) -> Iterator[Row]:
    """The samples spread over two ranks, compared with one rank that has them all."""
    yield two_ranks(name, OURS, "local_energy", str(batch), model, rounds=rounds, bar=_RANKS_BAR)


_FLOPS = "one core beside its FMA peak"


def _flops(batch: int, rounds: int, name: str) -> Iterator[Row]:
    """The time that the kernel's operations would take at the peak rate: three for each hidden unit and element."""
    model = nk.models.RBM(alpha=4)
    setup = _Setup(heisenberg(total_sz=0), model, batch)
    call = setup.ours_call()
    times = paired({OURS: partial(on_cores, call, 1)}, rounds=rounds)
    operations = 3 * (len(setup.connected()) - batch) * model.alpha * setup.x.shape[-1]
    yield Row(name, times, limits={_PEAK: operations / peak_rate(rounds)})
