"""How many proposals of a chain the network sees at once: the chain is the same, and the fastest number is found."""

from collections.abc import Callable
from typing import Any

import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.sampler import chains, lookahead
from ferroket.sampler.lookahead import Search
from support.constrained_spaces import RYDBERG
from support.transitions import CASES, WITH_MORE_STATES, run

# Of a function that Rust knows it would evaluate the layers itself.
MLP = nk.models.MLP(hidden_dims=(5,), hidden_activations=jax.lax.erf, param_dtype=float)
MANY = CASES | WITH_MORE_STATES


class Fixed(Search):
    """No search."""

    def run(self, call: Callable[[int], Any]) -> Any:
        return call(self.n_speculative)


def found_by(seconds: dict[int, float], acceptance: float = 0.1) -> Search:
    """A search where the calls take so long for each number of proposals."""
    search = Search()
    for _ in range(40):
        search.note(seconds[search.n_speculative], acceptance)
    return search


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({1: 1.0, 2: 1.0}, 1),
        ({1: 1.0, 2: 0.95}, 1),
        ({1: 1.0, 2: 0.6, 4: 0.4, 8: 0.39}, 4),
        ({number: 1 / number for number in (1, 2, 4, 8, 16)}, 16),
    ],
)
def test_the_fastest_number(seconds: dict[int, float], expected: int) -> None:
    search = found_by(seconds)
    assert (search.n_speculative, search.is_over) == (expected, True)


def test_calls_that_compile_do_not_count() -> None:
    search = Search()
    for seconds in (9.0, 1.0, 1.1):
        search.note(seconds, 0.1)
    assert search.n_speculative == 2
    for seconds in (9.0, 0.8, 3.0):
        search.note(seconds, 0.1)
    assert search.n_speculative == 4


def test_chains_that_accept_often_ask_for_one() -> None:
    faster = {number: 1 / number for number in (1, 2, 4, 8, 16)}
    assert found_by(faster, 0.6).n_speculative == 1
    search = found_by(faster, 0.1)
    search.note(1.0, 0.6)
    assert search.n_speculative == 1


def test_another_acceptance_is_another_search() -> None:
    search = found_by({1: 1.0, 2: 1.0}, 0.45)
    search.note(1.0, 0.4)
    assert search.is_over
    search.note(1.0, 0.1)
    assert not search.is_over


@pytest.mark.quick("exchange", "Bose-Hubbard")
@pytest.mark.parametrize("name", MANY)
def test_the_same_chains(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def samples(n_speculative: int) -> Any:
        monkeypatch.setattr(chains, "search_of", lambda *_: Fixed(n_speculative))
        found = run(MANY[name], MLP, length=30, n_chains=8, sweep_size=7, scale=1.5)
        return found.samples, found.state.n_accepted_proc

    one = samples(1)
    for n_speculative in (2, 5):
        for found, expected in zip(samples(n_speculative), one, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_the_same_chains_in_a_space_of_a_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def samples(n_speculative: int) -> np.ndarray:
        monkeypatch.setattr(chains, "search_of", lambda *_: Fixed(n_speculative))
        sampler = fk.sampler.MetropolisLocal(RYDBERG, n_chains=8)
        return np.asarray(nk.vqs.MCState(sampler, MLP, n_samples=80, seed=1, sampler_seed=2).samples)

    np.testing.assert_array_equal(samples(3), samples(1))


def test_calls_search_and_explain_says_what_they_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where most moves are rejected, more proposals at once are fewer evaluations."""
    hilbert = nk.hilbert.Spin(0.5, 10)
    sampler = fk.sampler.MetropolisLocal(hilbert, n_chains=1)
    model = nk.models.MLP(hidden_dims=(7,), hidden_activations=jax.lax.erf, param_dtype=float)
    state = nk.vqs.MCState(sampler, model, n_samples=50, n_discard_per_chain=0, seed=1, sampler_seed=2)
    state.parameters = jax.tree.map(lambda leaf: 30 * leaf, state.parameters)
    monkeypatch.setattr(lookahead, "_agreed", lambda _: next(times))
    times = iter([9.0, 1.0, 1.0, 9.0, 0.5, 0.5, 9.0, 0.6, 0.6])
    assert fk.sampler.explain(state).at_once == 1
    for _ in range(9):
        state.sample()
    found = fk.sampler.explain(state)
    assert found.at_once == 2
    assert "it sees 2 proposals of a chain at once" in str(found)
