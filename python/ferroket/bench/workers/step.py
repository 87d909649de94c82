"""Times a step of VMC_SR and its parts.

Arguments: the name of a case of ``ferroket.bench.states``; "ferroket" or "netket"; how many samples; how many steps.
"""

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import ferroket as fk
from ferroket.bench.jobs import report
from ferroket.bench.timing import seconds

WARMUP = 3


def main() -> None:
    """Measures, and reports the seconds of the step and of each part, by name."""
    info = fk.initialize()
    import jax
    import netket as nk

    from ferroket.bench.states import CASES, Library

    name, library, n_samples, steps = sys.argv[1:]
    which: Library = "ferroket" if library == "ferroket" else "netket"
    state, operator = CASES[name].state(which, int(n_samples))
    # With the Jacobian as a matrix, which is faster than without where it has room.
    driver = nk.driver.VMC_SR(
        operator, nk.optimizer.Sgd(1e-4), variational_state=state, diag_shift=1e-2, on_the_fly=False
    )
    ends = []

    def callback(*_: object) -> bool:
        jax.block_until_ready(state.parameters)
        ends.append(time.perf_counter())
        return True

    driver.run(WARMUP + int(steps) + 1, callback=callback, show_progress=False)
    times = [end - start for start, end in itertools.pairwise(ends)]

    def median(call: Callable[[], Any]) -> float:
        return statistics.median([seconds(lambda: jax.block_until_ready(call())) for _ in range(WARMUP + int(steps))])

    @jax.jit
    def jacobian(parameters: Any, samples: Any) -> Any:
        return nk.jax.jacobian(
            state._apply_fun,
            parameters,
            samples.reshape(-1, samples.shape[-1]),
            state.model_state,
            mode=driver.mode,
            dense=True,
            center=True,
        )

    parts = {
        "sampling": median(state.sample),
        "local energy": median(lambda: state.local_estimators(operator)),
        "Jacobian": median(lambda: jacobian(state.parameters, state.samples)),
    }
    # The update of the parameters has the local energies and the Jacobian for a part.
    update = median(driver.compute_loss_and_update)
    parts["solve"] = update - parts["local energy"] - parts["Jacobian"]
    step = statistics.median(times[WARMUP:])
    parts["rest"] = step - parts["sampling"] - update
    if info.rank == 0:
        report({"step": step, **{part: max(value, 0.0) for part, value in parts.items()}})


if __name__ == "__main__":
    main()
