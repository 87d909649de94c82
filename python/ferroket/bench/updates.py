"""The update of ``VMC_SR`` by itself: NetKet's, in each of its settings, and what ``fk.enable()`` puts in its place."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import netket as nk
import numpy as np
from jax.experimental import multihost_utils

from ferroket._compat.netket import UPDATES, Replaceable

Options = dict[str, bool]
Update = Callable[..., Any]

SETTINGS: tuple[Options, ...] = (
    {"use_ntk": True, "on_the_fly": True},
    {"use_ntk": True, "on_the_fly": False},
    {"use_ntk": False},
)
"""The settings of ``VMC_SR`` of which NetKet has the fastest."""

MOST_PARAMETERS = 3000
"""With more parameters than this, their own matrix is left out: that of the samples is smaller."""


def settings_for(n_parameters: int) -> tuple[Options, ...]:
    """The settings that are worth a try."""
    return tuple(options for options in SETTINGS if options["use_ntk"] or n_parameters < MOST_PARAMETERS)


def text_of(options: Options) -> str:
    """Settings as one writes them in a script."""
    return ", ".join(f"{name}={value}" for name, value in options.items())


def driver_of(state: Any, operator: Any, options: Options) -> Any:
    """``VMC_SR`` with some of :data:`SETTINGS`, or with its own without any."""
    optimizer = nk.optimizer.Sgd(1e-4)
    return nk.driver.VMC_SR(operator, optimizer, variational_state=state, diag_shift=1e-2, **options)


@contextmanager
def wrapped(
    wrap: Callable[[Update], Update], replaceables: Sequence[Replaceable] = tuple(UPDATES.values())
) -> Iterator[None]:
    """Within it, NetKet calls some of its functions through a wrapper, whosever they are: the updates of ``VMC_SR``."""
    functions = [replaceable.current for replaceable in replaceables]
    for replaceable, function in zip(replaceables, functions, strict=True):
        replaceable.replace(wrap(function))
    try:
        yield
    finally:
        for replaceable, function in zip(replaceables, functions, strict=True):
            replaceable.replace(function)


class LastUpdate:
    """The last update of steps that are done with :func:`wrapped` by :meth:`noted`, to be called once more."""

    def __init__(self) -> None:
        self._call: Callable[[], Any] | None = None

    def noted(self, update: Update) -> Update:
        """The wrapper."""

        def call(*arguments: Any, **options: Any) -> Any:
            self._call = partial(update, *arguments, **options)
            return update(*arguments, **options)

        return call

    def __call__(self) -> Any:
        """The update, with the same arguments; returns when it is done.

        Raises:
            RuntimeError: The steps called none of the functions that are known to compute it.
        """
        if self._call is None:
            raise RuntimeError(f"a step of VMC_SR called none of {', '.join(UPDATES)}: its update isn't timed")
        return jax.block_until_ready(self._call())


def last_update(driver: Any) -> LastUpdate:
    """Does a step, and returns its update."""
    update = LastUpdate()
    with wrapped(update.noted):
        driver.run(1, show_progress=False)
    return update


def calls_within(limit: float, one: float, *, least: int, most: int) -> int:
    """How many calls to measure: as many as take a time, by the clock of rank 0. All ranks must ask.

    Args:
        limit: That time, in seconds.
        one: What one call takes.
        least: At least so many, however long they take.
        most: At most so many.
    """
    count = min(max(int(limit / one), least), most)
    return int(multihost_utils.broadcast_one_to_all(np.int32(count)))
