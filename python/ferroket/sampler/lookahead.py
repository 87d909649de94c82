"""How many proposals of a chain are evaluated at once: as many as a measurement says.

A network may take hardly longer for a few configurations more. Then a chain asks about its next proposals as well,
those that it will make if the ones before are rejected. It is the same chain for any number of them, so the calls of a
run try numbers out by themselves: 1, 2, 4, ..., as long as the next one is faster.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

_MOST = 16
"""Of so many proposals in a row one is accepted nearly always."""
_OFTEN = 0.5
"""Where more moves than that are accepted too many of the next proposals are evaluated in vain."""
_GAIN = 1.1
"""A number has to be so many times faster than the one before."""
_TIMED = 2
"""Calls that are timed for each number; the faster one counts."""
_CHANGED = 1.5
"""When the chains reject so many times more, or less, there is another search."""


@dataclass
class Search:
    """The search for the fastest number of proposals, call by call."""

    n_speculative: int = 1
    """How many the next call evaluates at once."""
    is_over: bool = False
    """Whether that is the fastest number, until the acceptance is another one."""
    _acceptance: float = 1.0
    """That of the calls that found it."""
    _before: float = np.inf
    """The seconds of a call with half as many."""
    _seconds: list[float] = field(default_factory=list)
    """Those of the calls with as many as now; of the first one not, which compiles."""
    _is_compiled: bool = False
    _calls: int = 0

    def run(self, call: Callable[[int], Any]) -> Any:
        """Calls a function of the number of proposals, which returns samples and the state of the chains."""
        self._calls += 1
        # Later calls are looked at now and then, so that they needn't be waited for.
        if self.is_over and self._calls & (self._calls - 1):
            return call(self.n_speculative)
        begin = time.perf_counter()
        result = jax.block_until_ready(call(self.n_speculative))
        state = result[1]
        self.note(_agreed(time.perf_counter() - begin), float(state.n_accepted) / max(int(state.n_steps), 1))
        return result

    def note(self, seconds: float, acceptance: float) -> None:
        """Takes note of how long a call took, and how many moves the chains accept."""
        if acceptance > _OFTEN:
            self._acceptance = acceptance
            self._end(1)
            return
        if self.is_over:
            rejected, then = (max(1 - share, 1e-3) for share in (acceptance, self._acceptance))
            if not 1 / _CHANGED < rejected / then < _CHANGED:
                self._try(1)
            return
        self._acceptance = acceptance
        if not self._is_compiled:
            self._is_compiled = True
        else:
            self._seconds.append(seconds)
            if len(self._seconds) == _TIMED:
                self._decide(min(self._seconds))

    def _decide(self, seconds: float) -> None:
        if self.n_speculative > 1 and seconds * _GAIN > self._before:
            self._end(self.n_speculative // 2)
        elif self.n_speculative == _MOST:
            self._end(_MOST)
        else:
            self._before = seconds
            self._try(2 * self.n_speculative)

    def _try(self, n_speculative: int) -> None:
        self.n_speculative, self.is_over, self._is_compiled, self._seconds = n_speculative, False, False, []

    def _end(self, n_speculative: int) -> None:
        self.n_speculative, self.is_over = n_speculative, True


def _agreed(seconds: float) -> float:
    """The seconds of the first process, in all: each has to run the same program."""
    if jax.process_count() == 1:
        return seconds
    return float(multihost_utils.broadcast_one_to_all(np.float64(seconds)))


@functools.lru_cache(maxsize=256)
def search(rule: str, model: Any, hilbert: Any, n_chains: int, sweep: int, length: int) -> Search:
    """The search of calls that are alike: with this rule and model, so many chains, and so many moves."""
    return Search()
