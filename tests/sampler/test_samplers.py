"""The samplers behave as NetKet's do, in whatever NetKet makes of them, and say so where they can't be faster."""

import re
from collections.abc import Iterator
from typing import Any

import flax.serialization
import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.sampler import chains, groups
from support.mpi import FULL
from support.transitions import CASES, FERMIONS, HAS_PROBABILITIES, HEISENBERG, ISING, SECTOR
from support.variational_states import CHAIN, MODELS, SPINS, random_like

RBM, MLP = MODELS["RBM"], nk.models.MLP(hidden_dims=(5,), param_dtype=float)
COMPLEX_MLP = nk.models.MLP(hidden_dims=(5,), param_dtype=complex)
SINGLE_MLP = nk.models.MLP(hidden_dims=(5,), param_dtype=np.float32)
# XLA evaluates its layers, since Rust doesn't know the function.
NETWORK = nk.models.MLP(hidden_dims=(5,), hidden_activations=jax.lax.erf, param_dtype=float)
NETWORKS = {"MLP": MLP, "MLP, complex": COMPLEX_MLP, "MLP, float32": SINGLE_MLP}
EXACT = -2 / np.sin(np.pi / 12)  # the ground state of the critical Ising chain of six sites, by free fermions


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    fk.disable()


def make_variables(model: Any, hilbert: Any) -> Any:
    sample = jax.ShapeDtypeStruct((1, hilbert.size), np.int8)
    return random_like(jax.eval_shape(model.init, jax.random.key(0), sample), 0.3)


def start(sampler: Any, model: Any = RBM, seed: int = 5) -> tuple[Any, Any]:
    """Variables of a model, and a state to sample from."""
    variables = make_variables(model, sampler.hilbert)
    return variables, sampler.reset(model, variables, sampler.init_state(model, variables, seed=seed))


def make_state(sampler: Any, model: Any = RBM, **options: Any) -> Any:
    options = {"n_samples": 64, "sampler_seed": 5, "variables": make_variables(model, sampler.hilbert), **options}
    return nk.vqs.MCState(sampler, model, **options)


def equal(one: Any, other: Any) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(raw(a), raw(b), equal_nan=True) for a, b in leaves)


def raw(leaf: Any) -> np.ndarray:
    is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


OPTIONS = {"n_chains": 8, "dtype": np.float32, "sweep_size": 3, "machine_pow": 1.5}
# One of each rule that there is a kernel for.
WITH_OPTIONS = CASES if FULL else ("local", "exchange", "Heisenberg")


@pytest.mark.quick("Heisenberg-options11", "exchange-options13")
@pytest.mark.parametrize(
    ("name", "options", "model"),
    [
        *((name, {}, RBM) for name in CASES),
        *((name, OPTIONS, RBM) for name in WITH_OPTIONS),
        *((name, OPTIONS, MLP) for name in ("local", "exchange")),
        ("local", {}, SINGLE_MLP),
    ],
)
def test_states_and_samples_have_netkets_types(name: str, options: dict[str, Any], model: Any) -> None:
    found = []
    for library in (fk.sampler, nk.sampler):
        sampler = CASES[name].make(library, **options)
        variables, state = start(sampler, model)
        with_log, end = sampler.sample(model, variables, state=state, chain_length=4, return_log_probabilities=True)
        one = sampler.sample_next(model, variables, state)
        found.append(
            jax.tree.map(
                lambda leaf: (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)), (state, with_log, end, one)
            )
        )
        assert isinstance(sampler, nk.sampler.MetropolisSampler)
        assert end.n_steps == sampler.n_chains * 4 * sampler.sweep_size
        assert end.acceptance == pytest.approx(np.asarray(end.n_accepted_proc).sum() / end.n_steps)
    assert jax.tree.leaves(found[0]) == jax.tree.leaves(found[1])
    assert type(sampler) is nk.sampler.MetropolisSampler


@pytest.mark.quick("4-RBM, complex", "None-Jastrow", "4-MLP, complex")
@pytest.mark.parametrize("name", ["RBM, complex", "RBMModPhase", "Jastrow", "RBM, float32", *NETWORKS])
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_log_probabilities_are_the_models(name: str, chunk_size: int | None) -> None:
    model = (MODELS | NETWORKS)[name]
    sampler = fk.sampler.MetropolisLocal(SPINS, n_chains=8, chunk_size=chunk_size, machine_pow=3)
    variables, state = start(sampler, model)
    (samples, log_prob), end = sampler.sample(
        model, variables, state=state, chain_length=5, return_log_probabilities=True
    )
    expected = 3 * np.asarray(model.apply(variables, samples.reshape(-1, 6))).real.reshape(8, 5)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    np.testing.assert_array_equal(end.σ, samples[:, -1])
    np.testing.assert_array_equal(end.log_prob, log_prob[:, -1])
    alone, same = sampler.sample(model, variables, state=state, chain_length=5)
    np.testing.assert_array_equal(alone, samples)
    np.testing.assert_allclose(same.log_prob, end.log_prob, rtol=1e-6)


@pytest.mark.parametrize("model", [RBM, MLP], ids=["RBM", "MLP"])
def test_the_same_state_gives_the_same_samples(model: Any) -> None:
    sampler = fk.sampler.MetropolisExchange(SECTOR, graph=CHAIN)
    variables, state = start(sampler, model)
    first, end = sampler.sample(model, variables, state=state, chain_length=7)
    again, also = sampler.sample(model, variables, state=state, chain_length=7)
    assert equal((first, end), (again, also))
    more, _ = sampler.sample(model, variables, state=end, chain_length=7)
    assert not np.array_equal(first, more)
    other, _ = sampler.sample(model, variables, state=start(sampler, model, seed=6)[1], chain_length=7)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("model", [RBM, MLP], ids=["RBM", "MLP"])
def test_chains_do_not_depend_on_how_many_there_are(model: Any) -> None:
    sampler = fk.sampler.MetropolisLocal(SPINS, n_chains=16)
    variables, state = start(sampler, model)
    few = fk.sampler.MetropolisLocal(SPINS, n_chains=3)
    part = state.replace(σ=state.σ[:3], log_prob=state.log_prob[:3], n_accepted_proc=state.n_accepted_proc[:3])
    all_samples, _ = sampler.sample(model, variables, state=state, chain_length=9)
    samples, _ = few.sample(model, variables, state=part, chain_length=9)
    np.testing.assert_array_equal(samples, all_samples[:3])


@pytest.mark.parametrize("n_groups", [1, 2, 4])
def test_chains_in_groups(n_groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group in a thread of its own, and all in one where a setting of JAX's holds in this thread alone."""
    sampler = fk.sampler.MetropolisExchange(SECTOR, graph=CHAIN, n_chains=12, reset_chains=True)
    variables, state = start(sampler, NETWORK)
    monkeypatch.setattr(groups, "_n_groups", lambda _: 3)
    expected = sampler.sample(NETWORK, variables, state=state, chain_length=5, return_log_probabilities=True)
    monkeypatch.setattr(groups, "_n_groups", lambda _: n_groups)
    found = sampler.sample(NETWORK, variables, state=state, chain_length=5, return_log_probabilities=True)
    np.testing.assert_array_equal(found[0][0], expected[0][0])
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(raw(ours), raw(theirs), rtol=1e-12)
    with jax.default_matmul_precision("highest"):
        found = sampler.sample(NETWORK, variables, state=state, chain_length=5, return_log_probabilities=True)
    np.testing.assert_array_equal(found[0][0], expected[0][0])


def test_as_many_groups_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for n_cores, n_chains, expected in [(1, 16, 1), (2, 16, 2), (3, 16, 2), (64, 16, 4), (64, 6, 1), (2, 7, 1)]:
        monkeypatch.setattr("os.sched_getaffinity", lambda _, n=n_cores: set(range(n)))
        _, state = start(fk.sampler.MetropolisLocal(SPINS, n_chains=n_chains), MLP)
        assert groups._n_groups(state) == expected


def test_states_are_saved_and_restored() -> None:
    sampler = fk.sampler.MetropolisHamiltonian(SPINS, ISING)
    state = make_state(sampler, n_discard_per_chain=2)
    samples = np.asarray(state.samples)
    saved = flax.serialization.to_bytes(state)
    other = make_state(sampler, n_discard_per_chain=2, sampler_seed=9)
    assert not np.array_equal(other.samples, samples)
    loaded = flax.serialization.from_bytes(other, saved)
    # What NetKet saves is the sampler's state before the last samples, which are drawn again.
    np.testing.assert_array_equal(loaded.samples, samples)
    following = [np.asarray(which.sample()) for which in (loaded, state)]
    np.testing.assert_array_equal(*following)


def test_chains_are_reset_if_they_are_to_be() -> None:
    for reset in (False, True):
        sampler = fk.sampler.MetropolisLocal(SPINS, reset_chains=reset, sweep_size=1)
        variables, state = start(sampler)
        _, end = sampler.sample(RBM, variables, state=state, chain_length=3)
        again = sampler.reset(RBM, variables, end)
        assert np.array_equal(again.σ, end.σ) != reset
        assert again.n_steps == 0
        assert again.n_accepted == 0
        assert again.acceptance is None


@pytest.mark.parametrize(("model", "kernel"), [(RBM, "rbm"), (MLP, "network")], ids=["RBM", "MLP"])
def test_under_jit(model: Any, kernel: str) -> None:
    sampler = fk.sampler.MetropolisLocal(SPINS)
    variables, state = start(sampler, model)

    @jax.jit
    def sample(sampler: Any, variables: Any, state: Any) -> Any:
        return sampler.sample(model, variables, state=state, chain_length=3)

    found, expected = sample(sampler, variables, state), sampler.sample(model, variables, state=state, chain_length=3)
    np.testing.assert_array_equal(found[0], expected[0])
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(raw(ours), raw(theirs), rtol=1e-12)
    assert f"ferroket_chains_{kernel}" in sample.lower(sampler, variables, state).as_text()


@pytest.mark.parametrize("model", [RBM, MLP], ids=["RBM", "MLP"])
def test_several_parameters_at_once(model: Any) -> None:
    sampler = fk.sampler.MetropolisLocal(SPINS)
    variables, state = start(sampler, model)
    several = jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf]), variables)
    samples = jax.vmap(lambda variables: sampler.sample(model, variables, state=state, chain_length=3)[0])(several)
    for place in range(2):
        one = jax.tree.map(lambda leaf, place=place: leaf[place], several)
        np.testing.assert_array_equal(samples[place], sampler.sample(model, one, state=state, chain_length=3)[0])


@pytest.mark.parametrize(("model", "program"), [(RBM, chains._known), (MLP, chains._any)], ids=["RBM", "MLP"])
def test_another_power_compiles_nothing(model: Any, program: Any) -> None:
    variables, state = start(fk.sampler.MetropolisLocal(SPINS), model)
    results, programs = [], []
    for power in (2.0, 0.5, 1.0):
        sampler = fk.sampler.MetropolisLocal(SPINS, machine_pow=power)
        results.append(np.asarray(sampler.sample(model, variables, state=state, chain_length=8)[0]))
        programs.append(program._cache_size())
    assert len(set(programs)) == 1
    assert not np.array_equal(results[0], results[1])


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["local", "Ising"])
def test_a_ground_state(name: str) -> None:
    model = nk.models.RBM(alpha=1, kernel_init=jax.nn.initializers.normal(0.2), param_dtype=float)
    sampler = CASES[name].make(fk.sampler, n_chains=16)
    state = nk.vqs.MCState(sampler, model, n_samples=512, seed=1, sampler_seed=2, chunk_size=128)
    critical = fk.operator.Ising(SPINS, CHAIN, h=1.0)
    driver = nk.driver.VMC_SR(critical, nk.optimizer.Sgd(0.1), variational_state=state, diag_shift=1e-2)
    driver.run(60, show_progress=False)
    energy = state.expect(critical)
    assert abs(energy.mean - EXACT) < 1e-3 * abs(EXACT) + 4 * energy.error_of_mean
    assert energy.R_hat < 1.05


# Which way a sampler takes


def reasons(sampler: Any, model: Any = RBM) -> list[str]:
    """Why a sampler is NetKet's."""
    found = fk.sampler.explain(make_state(sampler, model))
    assert found.path == "NetKet"
    return found.reasons


def around_network(sampler: Any, model: Any = RBM) -> list[str]:
    """Why a sampler evaluates the network."""
    found = fk.sampler.explain(make_state(sampler, model))
    assert found.path.startswith("chains in Rust")
    assert found.ansatz is None
    assert str(found).startswith(f"{found.path}: the {found.rule} rule, and the network evaluated for each proposal\n")
    return [reason for reason in found.reasons if not reason.startswith("XLA evaluates ")]


def test_what_runs_in_rust() -> None:
    state = make_state(fk.sampler.MetropolisLocal(SPINS), MODELS["RBMSymm"])
    found = fk.sampler.explain(state)
    assert (found.path, found.rule, found.ansatz, found.reasons) == ("chains in Rust", "local", "RBMSymm", [])
    assert str(fk.sampler.explain(state)) == "chains in Rust: the local rule, with amplitude ratios of RBMSymm"
    for name, rule in {"exchange": "exchange", "fermions": "exchange", "Heisenberg": "hamiltonian"}.items():
        assert fk.sampler.explain(make_state(CASES[name].make(fk.sampler))).rule == rule


def test_what_layers_are_evaluated_in_rust() -> None:
    sampler = fk.sampler.MetropolisLocal(SPINS)
    found = fk.sampler.explain(make_state(sampler, nk.models.MLP(hidden_dims=(5, 4, 3), param_dtype=float)))
    assert (found.path, found.first_layer) == ("chains in Rust", 5)
    assert "evaluated in Rust" in found.rest
    assert found.rest in str(found).splitlines()
    found = fk.sampler.explain(make_state(sampler, NETWORK))
    assert (found.path, found.first_layer, found.rest) == ("chains in Rust around the network", 5, "")
    assert found.reasons[-1] == "XLA evaluates the rest: the kernels have no 'erf'"
    found = fk.sampler.explain(make_state(sampler, COMPLEX_MLP))
    assert (found.path, found.first_layer) == ("chains in Rust", 10)
    assert found.rest == "evaluated in Rust, in lanes: 2 operations, 1 of them products"
    even = fk.sampler.MetropolisLocal(nk.hilbert.Spin(0.5, 6, constraint=Parity()))
    assert fk.sampler.explain(make_state(even, MLP)).path == "chains in Rust around the network"


class Parity(nk.hilbert.constraint.DiscreteHilbertConstraint):
    """As many spins up as make an even number."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return (x > 0).sum(axis=-1) % 2 == 0

    def __hash__(self) -> int:
        return hash("parity")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parity)


def test_what_runs_around_the_network() -> None:
    spin_1 = nk.hilbert.Spin(1, 4)
    assert around_network(fk.sampler.MetropolisLocal(spin_1)) == ["some sites don't have two local states"]
    bosons = nk.hilbert.Fock(3, 4)
    hubbard = fk.operator.BoseHubbard(bosons, nk.graph.Chain(4), U=1.0)
    found = fk.sampler.explain(make_state(fk.sampler.MetropolisHamiltonian(bosons, hubbard), MLP))
    assert found.rule == "hamiltonian"
    assert found.reasons[:2] == [
        "the rule's operator isn't a sum of non-branching terms",
        "some sites don't have two local states",
    ]
    (reason,) = around_network(fk.sampler.MetropolisLocal(SPINS), NETWORK)
    assert reason.startswith("netket's MLP is none of the models whose amplitude ratios are known")
    half = nk.models.RBM(param_dtype=np.float16)
    assert around_network(fk.sampler.MetropolisLocal(SPINS), half) == ["there are parameters of float16"]
    even = nk.hilbert.Spin(0.5, 6, constraint=Parity())
    own = ["the Hilbert space has a constraint of its own, which the kernels don't know"]
    assert around_network(fk.sampler.MetropolisLocal(even)) == own
    assert around_network(fk.sampler.MetropolisExchange(even, graph=CHAIN)) == own


def test_what_does_not() -> None:
    rule = nk.sampler.rules.MultipleRules([nk.sampler.rules.LocalRule()] * 2, [0.5, 0.5])
    (reason,) = reasons(fk.sampler.MetropolisSampler(SPINS, rule))
    assert reason.endswith("and this is MultipleRules")
    even = nk.hilbert.Spin(0.5, 6, constraint=Parity())
    own = ["the Hilbert space has a constraint of its own, which the kernels don't know"]
    assert reasons(fk.sampler.MetropolisHamiltonian(even, fk.operator.Ising(even, CHAIN, h=1.0))) == own
    mixed = nk.hilbert.Spin(0.5, 2) * nk.hilbert.Fock(2, 2)
    different = ["the sites that are exchanged may have different local states"]
    assert reasons(fk.sampler.MetropolisExchange(mixed, clusters=[(0, 1)]), MLP) == different
    (reason,) = reasons(nk.sampler.ExactSampler(SPINS))
    assert reason == "ExactSampler isn't exactly one of the Metropolis samplers of NetKet or of fk.sampler"
    (reason,) = reasons(nk.sampler.MetropolisLocal(SPINS))
    assert reason == "the sampler is NetKet's: call fk.enable(), or take the one of fk.sampler"
    assert fk.sampler.explain(nk.vqs.FullSumState(SPINS, RBM)).reasons == [
        "FullSumState is no MCState, and has no sampler"
    ]


def test_what_does_not_is_netkets() -> None:
    """The same samples, to the bit."""
    local = nk.sampler.rules.LocalRule()
    several = nk.sampler.rules.MultipleRules([local] * 2, [0.5, 0.5])
    for model, rule in [(MLP, several), (RBM, several), (MLP, local), (RBM, local)]:
        theirs, ours = (library.MetropolisSampler(SPINS, rule) for library in (nk.sampler, fk.sampler))
        variables, state = start(theirs, model)
        expected = theirs.sample(model, variables, state=state, chain_length=3)
        assert equal(ours.sample(model, variables, state=state, chain_length=3), expected) == (rule is several)
        following = theirs.sample_next(model, variables, state)
        assert equal(ours.sample_next(model, variables, state), following) == (rule is several)


def test_models_given_as_functions() -> None:
    sampler = fk.sampler.MetropolisLocal(SPINS)
    variables, state = start(sampler, MLP)
    found, expected = (sampler.sample(model, variables, state=state, chain_length=3) for model in (MLP.apply, MLP))
    assert equal(found, expected)


# In an unchanged script


@pytest.mark.quick("Ising", "fermions")
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("local, qubits", "exchange", "Heisenberg")])
def test_enabling(name: str) -> None:
    check_enabling(name, RBM, "chains in Rust")


@pytest.mark.parametrize(
    ("model", "path"), [(NETWORK, "chains in Rust around the network"), (MLP, "chains in Rust")], ids=["network", "MLP"]
)
def test_enabling_with_a_network(model: Any, path: str) -> None:
    check_enabling("exchange", model, path)


def check_enabling(name: str, model: Any, path: str) -> None:
    sampler, ours = (CASES[name].make(library) for library in (nk.sampler, fk.sampler))
    variables, state = start(sampler, model)
    netkets = sampler.sample(model, variables, state=state, chain_length=3)
    expected = ours.sample(model, variables, state=state, chain_length=3)
    fk.enable()
    assert fk.sampler.is_enabled()
    assert fk.sampler.explain(make_state(sampler, model)).path == path
    assert equal(sampler.sample(model, variables, state=state, chain_length=3), expected)
    assert equal(sampler.sample_next(model, variables, state), ours.sample_next(model, variables, state))
    fk.enable()
    fk.disable()
    assert not fk.sampler.is_enabled()
    assert equal(sampler.sample(model, variables, state=state, chain_length=3), netkets)


@pytest.mark.thorough
def test_what_is_not_enabled() -> None:
    """NetKet's other rules and samplers, and subclasses."""

    class Own(nk.sampler.MetropolisSampler):
        pass

    local = nk.sampler.rules.LocalRule()
    samplers = [
        (RBM, nk.sampler.MetropolisLocal(SECTOR)),
        (RBM, nk.sampler.MetropolisSampler(SPINS, nk.sampler.rules.MultipleRules([local] * 2, [0.5, 0.5]))),
        (RBM, Own(SPINS, local)),
        (RBM, nk.sampler.ParallelTemperingLocal(SPINS, n_replicas=4, n_chains=4)),
    ]
    for model, sampler in samplers:
        variables, state = start(sampler, model)
        expected = sampler.sample(model, variables, state=state, chain_length=2)
        fk.enable()
        assert equal(sampler.sample(model, variables, state=state, chain_length=2), expected)
        fk.disable()


# Bad input


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: fk.sampler.MetropolisLocal(SPINS, sweep_size=0),
            ValueError,
            "sweep_size is 0: propose at least 1 move",
        ),
        (lambda: fk.sampler.MetropolisLocal(SPINS, sweep_size=-3), ValueError, "sweep_size is -3: propose at least 1"),
        (lambda: fk.sampler.MetropolisLocal(SPINS, n_chains=4, n_chains_per_rank=4), ValueError, "Cannot specify both"),
        (lambda: fk.sampler.MetropolisLocal(SPINS, machine_pow=-1), ValueError, "must be positive"),
        (lambda: fk.sampler.MetropolisLocal(SPINS, machine_pow=1j), ValueError, "must be real"),
        (lambda: fk.sampler.MetropolisLocal(SPINS, reset_chains=1), TypeError, "reset_chains must be a boolean"),
        (lambda: fk.sampler.MetropolisLocal(SPINS, chains=1), TypeError, "chains"),
        (lambda: fk.sampler.MetropolisLocal("spins"), (TypeError, AttributeError), "hilbert|size"),
        (lambda: fk.sampler.MetropolisSampler(SPINS, "local"), TypeError, "must be a MetropolisRule"),
        (
            lambda: fk.sampler.MetropolisLocal(SECTOR),
            ValueError,
            "MetropolisLocal changes one site, but .* fixes the sum of the sites 0 to 5 to 0, so that it would leave "
            "the space: take MetropolisExchange or MetropolisHamiltonian",
        ),
        (
            lambda: fk.sampler.MetropolisExchange(FERMIONS, clusters=[(0, 1), (2, 3)]),
            ValueError,
            r"the cluster \(2, 3\) is exchanged, but .* fixes the sum of the sites 0 to 2 to 1",
        ),
        (
            lambda: fk.sampler.MetropolisExchange(SPINS, clusters=[(0, 1), (2, 6)]),
            ValueError,
            re.escape("cluster 1 is (2, 6), but there are 6 sites, counted from 0"),
        ),
        (lambda: fk.sampler.MetropolisExchange(SPINS), ValueError, "either provide the list of exchange-clusters"),
        (
            lambda: fk.sampler.MetropolisExchange(SPINS, clusters=[(0, 1)], probabilities=[-1.0]),
            ValueError if HAS_PROBABILITIES else TypeError,
            "Probabilities must be positive" if HAS_PROBABILITIES else "probabilities",
        ),
        (
            lambda: fk.sampler.MetropolisFermionHop(SPINS, graph=CHAIN),
            ValueError,
            "only works with SpinOrbitalFermions",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Using MetropolisExchange with SpinOrbitalFermions:UserWarning")
def test_bad_arguments(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_hamiltonian_of_another_space() -> None:
    sampler = fk.sampler.MetropolisHamiltonian(SPINS, HEISENBERG)
    with pytest.raises(ValueError, match=r"(?s)The hilbert space of the sampler.*must be the same"):
        make_state(sampler)


def test_the_state_of_another_sampler() -> None:
    sampler = fk.sampler.MetropolisLocal(SPINS)
    _, of_qubits = start(fk.sampler.MetropolisLocal(nk.hilbert.Qubit(6), dtype=np.int8))
    _, longer = start(fk.sampler.MetropolisLocal(nk.hilbert.Spin(0.5, 7)))
    _, more = start(fk.sampler.MetropolisLocal(SPINS, n_chains=17))
    variables = make_variables(RBM, SPINS)
    message = r"configurations of shape \(16, 7\), but this sampler has 16 chains on 6 sites"
    with pytest.raises(ValueError, match=message):
        sampler.sample(RBM, variables, state=longer, chain_length=2)
    with pytest.raises(ValueError, match=r"configurations of shape \(17, 6\), but this sampler has 16 chains"):
        sampler.sample(RBM, variables, state=more, chain_length=2)
    message = r"chain \d+ holds something else than one of the local states on site \d"
    for model in (RBM, MLP):
        variables = make_variables(model, SPINS)
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=message):
            jax.block_until_ready(sampler.sample(model, variables, state=of_qubits, chain_length=2))


def test_chains_that_devices_can_not_share() -> None:
    """As NetKet: rounded up, with a warning."""
    with pytest.raises(ValueError, match="Chunk size must divide"):
        fk.sampler.MetropolisLocal(SPINS, n_chains=6, chunk_size=4)


def test_chains_of_no_length() -> None:
    sampler = fk.sampler.MetropolisLocal(SPINS)
    variables, state = start(sampler)
    samples, end = sampler.sample(RBM, variables, state=state, chain_length=0)
    assert samples.shape == (16, 0, 6)
    assert equal(end.σ, state.σ)
