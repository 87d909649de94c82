"""What isn't an operator, a sample or a sum is an error that names the value and the rule."""

from contextlib import suppress

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ferroket as fk
from support.example_operators import (
    BOSONS,
    CHAIN,
    ELECTRONS,
    EXAMPLES,
    EXCHANGE,
    FERMIONS,
    MATRIX,
    NETKET,
    SINGLETS,
    SPIN_ONE,
    SPINS,
    TRIANGLE,
    ZZ,
)
from support.generated_operators import checks, local_states

op = fk.operator
X = np.array([[0.0, 1], [1, 0]])
ORBITALS = nk.hilbert.SpinOrbitalFermions(4)
# JAX raises a ValueError for an invalid argument if the program has ended when its result is asked for.
ERRORS = (jax.errors.JaxRuntimeError, ValueError)


def fermions(hilbert, *terms):
    return nk.operator.FermionOperator2ndJax(hilbert, terms)


ARGUMENTS = {
    # Sites
    "site too large": (
        lambda: op.LocalOperator(SPINS, [X], [[4]]),
        ValueError,
        r"operator 0 acts on site 4, but the 4 sites are numbered from 0 to 3",
    ),
    "negative site": (lambda: op.LocalOperator(SPINS, [X], [[-1]]), ValueError, r"operator 0 acts on site -1"),
    "repeated site": (
        lambda: op.LocalOperator(SPINS, [X, ZZ], [[0], [1, 1]]),
        ValueError,
        r"operator 1 acts on the sites \[1, 1\], one of them twice",
    ),
    "site that is no integer": (
        lambda: op.LocalOperator(SPINS, [X], [[0.5]]),
        TypeError,
        r"operator 0 .*0\.5.*integers",
    ),
    "fewer lists of sites": (lambda: op.LocalOperator(SPINS, [X, X], [[0]]), ValueError, r"2 matrices.*1 lists"),
    "node that is no site": (
        lambda: op.Heisenberg(SPINS, TRIANGLE, acting_on_subspace=2),
        ValueError,
        r"site 4, but the 4 sites are numbered from 0 to 3",
    ),
    "two nodes on one site": (
        lambda: op.Heisenberg(SPINS, TRIANGLE, acting_on_subspace=[0, 1, 1]),
        ValueError,
        r"\[1, 1\].*twice|node",
    ),
    "too few sites for the nodes": (
        lambda: op.Heisenberg(SPINS, TRIANGLE, acting_on_subspace=[0, 1]),
        ValueError,
        r"(2|\[0, 1\]).*3|length graph.n_nodes",
    ),
    "graph with more nodes than sites": (
        lambda: op.Heisenberg(SPINS, nk.graph.Chain(5)),
        ValueError,
        r"graph has 5 nodes, but the Hilbert space has 4 sites",
    ),
    "bosons: graph with more nodes": (
        lambda: op.BoseHubbard(BOSONS, nk.graph.Chain(5), U=1.0),
        ValueError,
        r"graph has 5 nodes, but the Hilbert space has 4 sites",
    ),
    "electrons: graph with more nodes": (
        lambda: op.FermiHubbard(ELECTRONS, CHAIN),
        ValueError,
        r"graph has 4 nodes.* 3 ",
    ),
    "edge beyond the sites": (lambda: op.BoseHubbard(BOSONS, [(0, 9)], U=1.0), ValueError, r"sites 0 and 9"),
    "orbital beyond the space": (lambda: op.FermionOperator2nd(ORBITALS, ["4^ 0"]), ValueError, r"orbital.* 4 "),
    "negative orbital": (lambda: op.FermionOperator2nd(ORBITALS, [((-1, 1), (0, 0))]), ValueError, r"orbital.*-1"),
    # Coefficients
    "matrix of another size": (
        lambda: op.LocalOperator(SPINS, [np.ones((3, 3))], [[0]]),
        ValueError,
        r"operator 0 has shape \(3, 3\), but .* need one of shape \(2, 2\)",
    ),
    "matrix that isn't square": (lambda: op.LocalOperator(SPINS, [np.ones((2, 4))], [[0]]), ValueError, r"\(2, 4\)"),
    "matrix of one dimension": (lambda: op.LocalOperator(SPINS, [np.ones(2)], [[0]]), ValueError, r"\(2,\)"),
    "bond matrix of one site": (
        lambda: op.GraphOperator(SPINS, CHAIN, bond_ops=[X]),
        ValueError,
        r"\(2, 2\).*\(4, 4\)",
    ),
    "matrix of spins 1/2 on spins 1": (lambda: op.Heisenberg(SPIN_ONE, TRIANGLE), ValueError, r"\(4, 4\).*\(9, 9\)"),
    "matrix of text": (lambda: op.LocalOperator(SPINS, [np.array([["a", "b"]] * 2)], [[0]]), TypeError, r"numbers"),
    "constant that is an array": (lambda: op.LocalOperator(SPINS, constant=np.ones(3)), ValueError, r"\(3,\)"),
    "complex numbers in a real dtype": (
        lambda: op.LocalOperator(SPINS, [MATRIX], [[0]], dtype=float),
        ValueError,
        r"2j, which dtype float64 can't hold",
    ),
    "one weight too many": (
        lambda: op.PauliStrings(SPINS, ["XXXX"], [1.0, 2.0]),
        ValueError,
        r"weights have shape \(2,\), but there are 1 strings",
    ),
    "weights of two dimensions": (lambda: op.PauliStrings(SPINS, ["XXXX"], [[1.0]]), ValueError, r"shape \(1, 1\)"),
    "imaginary weight in a real dtype": (
        lambda: op.PauliStrings(SPINS, ["XXXX"], [1j], dtype=float),
        (TypeError, ValueError),
        r"complex",
    ),
    "one σʸ in a real dtype": (
        lambda: op.PauliStrings(SPINS, ["YXXX"], [1.0], dtype=float),
        (TypeError, ValueError),
        r"odd number of Y",
    ),
    "fermions: one weight too many": (
        lambda: op.FermionOperator2nd(ORBITALS, ["0^ 1"], [1.0, 2.0]),
        ValueError,
        r"weights have shape \(2,\), but there are 1 terms",
    ),
    "hopping of other edges": (
        lambda: op.FermiHubbard(ELECTRONS, TRIANGLE, t=[1.0, 2]),
        ValueError,
        r"t has shape \(2,\).* 3 ",
    ),
    "repulsion of other sites": (
        lambda: op.FermiHubbard(ELECTRONS, TRIANGLE, U=[1.0, 2]),
        ValueError,
        r"U has shape \(2,\).* 3 ",
    ),
    "repulsion by site": (lambda: op.BoseHubbard(BOSONS, CHAIN, U=np.ones(4)), ValueError, r"U has shape \(4,\)"),
    "couplings of other colours": (
        lambda: op.Heisenberg(SPINS, CHAIN, J=[1.0, 2.0]),
        ValueError,
        r"J is \[1.0, 2.0\].* 1 colours",
    ),
    "matrices of other colours": (
        lambda: op.GraphOperator(SPINS, CHAIN, bond_ops=[ZZ], bond_ops_colors=[0, 1]),
        ValueError,
        r"bond_ops",
    ),
    "no matrix": (lambda: op.GraphOperator(SPINS, CHAIN), ValueError, r"site_ops or bond_ops"),
    "NaN in a matrix": (lambda: op.LocalOperator(SPINS, [X * np.nan], [[0]]), ValueError, r"operator 0 .*nan.*finite"),
    "infinite constant": (lambda: op.LocalOperator(SPINS, constant=np.inf), ValueError, r"inf, but must be finite"),
    "NaN weight": (lambda: op.PauliStrings(SPINS, ["XXXX"], [np.nan]), ValueError, r"weights? .*nan.*finite"),
    "NaN coupling": (lambda: op.Heisenberg(SPINS, CHAIN, J=np.nan), ValueError, r"nan.*finite"),
    "NaN potential": (lambda: op.BoseHubbard(BOSONS, CHAIN, U=1.0, mu=np.nan), ValueError, r"mu is nan"),
    "infinite weight of fermions": (
        lambda: op.FermionOperator2nd(ORBITALS, ["0^ 1"], [np.inf]),
        ValueError,
        r"weights? .*inf.*finite",
    ),
    "NaN repulsion": (lambda: op.FermiHubbard(ELECTRONS, TRIANGLE, U=np.nan), ValueError, r"U .*nan.*finite"),
    "negative cutoff": (lambda: op.PauliStrings(SPINS, ["XXXX"], [1.0], cutoff=-1), ValueError, r"cutoff"),
    "NaN factor": (lambda: np.nan * op.PauliStrings(SPINS, ["XXXX"]), ValueError, r"factor is nan"),
    "divisor 0": (lambda: op.PauliStrings(SPINS, ["XXXX"]) / 0, ZeroDivisionError, r"divided by zero"),
    "other coefficients in a form": (
        lambda: op.PauliStrings(SPINS, ["XXXX"], [1.0])._form.replace_values(np.ones(7)),
        ValueError,
        r"shape \(7,\)",
    ),
    # Words
    "unknown Pauli matrix": (lambda: op.PauliStrings(SPINS, ["XXAX"], [1.0]), ValueError, r"string 0, 'XXAX'.*'A'"),
    "string of another length": (lambda: op.PauliStrings(SPINS, ["XX"], [1.0]), ValueError, r"'XX', has 2 .* 4 sites"),
    "strings of two lengths": (lambda: op.PauliStrings(["XX", "XXX"]), ValueError, r"'XXX', has 3 "),
    "word that is no fermion operator": (lambda: op.FermionOperator2nd(ORBITALS, ["a^ 0"]), ValueError, r"'a"),
    "dagger that is neither 0 nor 1": (
        lambda: op.FermionOperator2nd(ORBITALS, [((0, 2), (0, 0))]),
        ValueError,
        r"2.*dagger",
    ),
    "term of numbers": (lambda: op.FermionOperator2nd(ORBITALS, [(0, 1)]), ValueError, r"depth 3|pairs"),
    # Spaces
    "no space": (lambda: op.LocalOperator(4, [X], [[0]]), TypeError, r"discrete Hilbert space, not on 4"),
    "Pauli matrices on spins 1": (lambda: op.PauliStrings(SPIN_ONE, ["XXX"]), ValueError, r"two local states.*3"),
    "bosons on spins": (lambda: op.BoseHubbard(SPINS, CHAIN, U=1.0), TypeError, r"bosons, not on Spin"),
    "fermions on spins 1": (
        lambda: op.FermionOperator2nd(SPIN_ONE, ["0^ 1"]).max_conn_size,
        ValueError,
        r"two local states, but those of Spin.*3",
    ),
    "fermions on bosons": (
        lambda: op.FermionOperator2nd(nk.hilbert.Fock(3, 4), ["0^ 1"]).max_conn_size,
        ValueError,
        r"two local states, but those of Fock.*4",
    ),
    "electrons without spin": (lambda: op.FermiHubbard(FERMIONS, CHAIN), ValueError, r"each spin.*n_fermions_per_spin"),
    "sites without a bound": (
        lambda: op.LocalOperator(nk.hilbert.Fock(N=2), constant=1.0).max_conn_size,
        TypeError,
        r"n_max=\.\.\.",
    ),
    # Conservation
    "spins that flip at fixed magnetisation": (
        lambda: op.LocalOperator(SINGLETS, [X], [[0]]).max_conn_size,
        ValueError,
        r"leads out of Spin.*total_sz=0.*site",
    ),
    "strings that flip at fixed magnetisation": (
        lambda: op.PauliStrings(SINGLETS, ["XXII"]).max_conn_size,
        ValueError,
        r"leads out of Spin.*total_sz=0",
    ),
    "fermions that appear": (
        lambda: op.FermionOperator2nd(FERMIONS, ["0^"]).max_conn_size,
        ValueError,
        r"leads out of .*n_fermions=2.*fixes it to 2",
    ),
    "fermions that change their spin": (
        lambda: op.FermionOperator2nd(ELECTRONS, ["0^ 3"]).max_conn_size,
        ValueError,
        r"leads out of .*sites 0 to 2 .*fixes it to 1",
    ),
    "conserving operator, term that doesn't": (
        lambda: op.ParticleNumberConservingFermioperator2nd.from_fermionoperator2nd(fermions(FERMIONS, "0^ 1^ 2")),
        ValueError,
        r"the term '0\^ 1\^ 2' creates 2 fermions and annihilates 1",
    ),
    "conserving operator, space without a number": (
        lambda: op.ParticleNumberConservingFermioperator2nd.from_fermionoperator2nd(fermions(ORBITALS, "0^ 1")),
        ValueError,
        r"fixed number of fermions, which SpinOrbitalFermions\(n_orbitals=4\) hasn't",
    ),
    "spin-conserving operator, term that doesn't": (
        lambda: op.ParticleNumberAndSpinConservingFermioperator2nd.from_fermionoperator2nd(fermions(ELECTRONS, "0^ 3")),
        ValueError,
        r"the term '0\^ 3' changes the numbers of fermions of the spins by \[1, -1\]",
    ),
    "conserving operator from spins": (
        lambda: op.ParticleNumberConservingFermioperator2nd.from_fermionoperator2nd(nk.operator.spin.sigmax(SPINS, 0)),
        TypeError,
        r"LocalOperatorJax is no FermionOperator2nd",
    ),
    "Marshall's sign on a triangle": (
        lambda: op.Heisenberg(nk.hilbert.Spin(0.5, 3), TRIANGLE, sign_rule=True),
        ValueError,
        r"bipartite",
    ),
    # What can't be accelerated
    "text": (lambda: fk.accelerate("H"), TypeError, r"builtins\.str"),
    "Liouvillian": (
        lambda: fk.accelerate(nk.operator.LocalLiouvillian(nk.operator.spin.sigmax(SPINS, 0))),
        TypeError,
        r"LocalLiouvillian.*superoperator",
    ),
    "subclass of NetKet's": (
        lambda: fk.accelerate(type("Mine", (nk.operator.IsingJax,), {})(SPINS, CHAIN, h=1.0)),
        TypeError,
        r"Mine",
    ),
    "subclass in a sum": (
        lambda: fk.accelerate(
            nk.operator.SumOperator(
                type("Mine", (nk.operator.IsingJax,), {})(SPINS, CHAIN, h=1.0), NETKET.Ising(SPINS, CHAIN, h=1.0)
            )
        ),
        TypeError,
        r"Mine",
    ),
    "subclass in a product": (
        lambda: fk.accelerate(
            nk.operator.ProductOperator(
                NETKET.PauliStrings(SPINS, ["XXXX"]), type("Mine", (nk.operator.IsingJax,), {})(SPINS, CHAIN, h=1.0)
            )
        ),
        TypeError,
        r"Mine",
    ),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments(case):
    make, error, message = ARGUMENTS[case]
    with pytest.raises(error, match=f"(?s){message}"):
        make()


def test_continuous_operators_are_refused():
    particles = nk.experimental.hilbert.Particle(N=1, geometry=nk.experimental.geometry.FreeSpace(d=1))
    with pytest.raises(TypeError, match=r"KineticEnergy.*continuous"):
        fk.accelerate(nk.operator.KineticEnergy(particles, mass=1.0))


# Two spaces

QUBITS = nk.hilbert.Qubit(4)
PAIRS = {
    "local matrices": (lambda h: op.LocalOperator(h, [X], [[0]]), SPINS, QUBITS),
    "Pauli strings": (lambda h: op.PauliStrings(h, ["XXXX"]), SPINS, QUBITS),
    "Ising": (lambda h: op.Ising(h, CHAIN, h=1.0), SPINS, QUBITS),
    "bosons": (lambda h: op.BoseHubbard(h, CHAIN, U=1.0), BOSONS, nk.hilbert.Fock(2, 4)),
    "fermions": (lambda h: op.FermionOperator2nd(h, ["0^ 1"]), ORBITALS, FERMIONS),
    "NetKet's second": (
        lambda h: (op if h is SPINS else nk.operator).PauliStrings(h, ["XXXX"]),
        SPINS,
        QUBITS,
    ),
    "another class": (
        lambda h: op.PauliStrings(h, ["XXXX"]) if h is SPINS else op.LocalOperator(h, [X], [[0]]),
        SPINS,
        QUBITS,
    ),
}


@pytest.mark.parametrize("combine", ["+", "-", "@", "+="])
@pytest.mark.parametrize("pair", PAIRS)
def test_operators_on_two_spaces(pair, combine):
    make, *spaces = PAIRS[pair]
    a, b = map(make, spaces)
    names = [type(space).__name__ for space in spaces]
    with pytest.raises(ValueError, match=rf"{names[0]}.* {names[1]}"):
        exec(f"a {combine} b", {"a": a, "b": b})


# Samples

compiled = [example for example in EXAMPLES if example.title not in ("identity", "zero")]
examples = pytest.mark.parametrize("example", compiled, ids=lambda example: example.title)


@examples
def test_samples_of_another_size(example):
    operator = example.ours()
    n = operator.hilbert.size
    for shape in ((3, n + 1), (3, n - 1), (n + 1,), (0, n + 2)):
        with pytest.raises(ValueError, match=rf"{shape[-1]}.* {n} "):
            operator.get_conn_padded(np.ones(shape, np.int8))
        with pytest.raises(ValueError, match=rf"{shape[-1]}.* {n} "):
            operator.n_conn(np.ones(shape, np.int8))
    with pytest.raises(ValueError, match="dimension"):
        operator.get_conn_padded(np.int8(1))
    with pytest.raises((ValueError, TypeError)):
        operator.get_conn_padded(np.array([["a"] * n]))


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "bool"])
def test_samples_that_cannot_hold_a_spin(dtype):
    for operator in (op.PauliStrings(SPINS, ["XXXX"]), op.LocalOperator(SPIN_ONE, [np.ones((3, 3))], [[0]])):
        with pytest.raises(ValueError, match=rf"dtype {dtype}, which can't hold the local state -"):
            operator.get_conn_padded(np.ones((2, operator.hilbert.size), dtype))


WRONG = {
    "int8": [5, -7, 127, -128],
    "int64": [5, -7, 2**62, -(2**63)],
    "float32": [0.5, np.nan, np.inf, -np.inf, 1e30, 1e-30],
    "float64": [0.5, -0.25, np.nan, np.inf, 5.0, 1e300],
}
METHODS = {
    "padded": lambda operator, x: operator.get_conn_padded(x),
    "counted": lambda operator, x: operator.n_conn(x),
    "compact": lambda operator, x: operator._form.compact(x, (0, 0), 50),
    "flattened": lambda operator, x: operator.get_conn_flattened(x, np.empty(len(x), int)),
}


def test_flattened_elements_in_a_traced_function():
    operator, sections = op.PauliStrings(SPINS, ["XXXX"]), np.empty(1, int)
    with pytest.raises(nk.errors.JaxOperatorGetConnInJitError, match="get_conn_padded"):
        jax.jit(lambda x: operator.get_conn_flattened(x, sections))(np.ones((1, 4)))


@pytest.mark.quick(
    "transverse-field Ising model",
    "sum of local matrices, spin 1",
    "Pauli strings",
    "permutation of sites",
    "sum of operators",
)
@examples
def test_samples_of_another_space(example):
    """Each wrong value is named, with its place; the first of two, as in one sample after the other."""
    operator = example.ours()
    x = np.array(example.basis[[0] * 9])
    for dtype, values in WRONG.items():
        for value in values:
            wrong = x.astype(dtype)
            wrong[4, 2] = value
            wrong[7, 0] = value
            methods = METHODS if (dtype, value) == ("int8", 5) else ["padded"]
            for method in methods:
                with pytest.raises(ERRORS, match=r"sample 4, site 2 has the value .*local states?"):
                    jax.block_until_ready(METHODS[method](operator, wrong))


@checks(60)
@given(data=st.data())
def test_garbage_is_never_a_number(data):
    """Bytes that come from anywhere: an error unless they happen to be samples."""
    example = data.draw(st.sampled_from(GARBAGE))
    operator = OPERATORS[example.title]
    sites = local_states(operator.hilbert)
    dtype = data.draw(st.sampled_from(["int8", "float32", "float64"]))
    n = len(sites)
    # Mostly local states, so that a single wrong one is met behind many right ones.
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    x = np.array(example.basis[rng.integers(len(example.basis), size=3)]).astype(dtype)
    anything = np.frombuffer(rng.bytes(x.nbytes), dtype).reshape(x.shape)
    x = np.where(rng.random(x.shape) < data.draw(st.sampled_from([0.1, 1.0])), anything, x)
    valid = all(np.isin(x[:, site], sites[site]).all() for site in range(n))
    if valid:
        jax.block_until_ready(operator.get_conn_padded(x))
        return
    for method in METHODS.values():
        with pytest.raises(ERRORS, match=r"sample \d, site \d has the value|more"):
            jax.block_until_ready(method(operator, x))


GARBAGE = [example for example in compiled if not example.by_accelerate and example.has_coefficients]
OPERATORS = {}


@pytest.fixture(scope="module", autouse=True)
def _build_once():
    OPERATORS.update({example.title: example.ours() for example in GARBAGE})


@pytest.mark.parametrize("wrong", [np.array([3, -1, 1, 1]), np.array([0.5, 1, 1, 1])])
def test_on_gpus_a_wrong_sample_has_no_number(wrong):
    from support.comparisons import on_a_gpu

    operator = op.PauliStrings(SPINS, ["XXII", "ZZII"])
    x = np.stack([np.ones(4), wrong]).astype(wrong.dtype)
    mels = on_a_gpu(lambda op, x: op.get_conn_padded(x), operator, x)(operator, x)[1]
    np.testing.assert_array_equal(np.isnan(mels), [[False] * mels.shape[1], [True] * mels.shape[1]])


def test_more_fermions_than_the_space_has():
    """The sector bounds the number of elements: a sample from elsewhere that has more is an error."""
    graph = nk.graph.Chain(6)
    hilbert = nk.hilbert.SpinOrbitalFermions(6, s=0.5, n_fermions_per_spin=(1, 1))
    operator = op.FermiHubbard(hilbert, graph)
    other = nk.hilbert.SpinOrbitalFermions(6, s=0.5, n_fermions_per_spin=(3, 3))
    x = np.array([[1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1]], np.int8)
    n_conn = int(op.FermiHubbard(other, graph).n_conn(x)[0]) + 1  # the diagonal, which is zero here
    assert operator.max_conn_size < n_conn
    with pytest.raises(ERRORS, match=rf"sample 0 has {n_conn} .*{operator.max_conn_size}"):
        jax.block_until_ready(operator.get_conn_padded(x))


def test_an_operator_with_broken_tables():
    """Tables that no constructor makes: an error from Rust, or a result, but no crash."""
    for example in GARBAGE:
        operator = OPERATORS[example.title]
        form = operator._form
        leaves, structure = jax.tree.flatten(form)
        expected = np.asarray(form.padded(example.basis)[1])
        for i, leaf in enumerate(leaves):
            if np.asarray(leaf).dtype.kind not in "iu" or not np.size(leaf):
                continue
            for replacement in (np.asarray(leaf) + 1, np.zeros_like(leaf), np.full_like(leaf, 2**31 - 1)):
                broken = jax.tree.unflatten(structure, [*leaves[:i], replacement, *leaves[i + 1 :]])
                with suppress(*ERRORS):
                    jax.block_until_ready(broken.padded(example.basis))
        # The process lives, and what is whole is right.
        np.testing.assert_array_equal(form.padded(example.basis)[1], expected)


def test_no_local_dimension_is_forgotten():
    assert jnp.isfinite(op.GraphOperator(SPINS, CHAIN, bond_ops=[EXCHANGE]).to_dense()).all()
