"""A run that can be stopped and go on, on another number of ranks too, and that says what it cost."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket import distributed
from ferroket.bench.report import machine
from ferroket.distributed import RuntimeInfo
from ferroket.distributed.arrays import write
from ferroket.local_energy import LanczosStep
from ferroket.published import options
from ferroket.published.log import Log, Segment
from ferroket.published.results import RESULTS, Result


class Run:
    """A script's run for one of :data:`~ferroket.published.RESULTS`.

    It keeps two files in its folder: ``NAME.mpack``, its checkpoint, and ``NAME.json``, its log. Both are replaced
    every few steps, so that it can be stopped at any time. The same command goes on, on any number of ranks.

    Args:
        names: The results that the script finds. The first word of the command line may choose one; by default it is
            the first.
        arguments: Those of the command line; by default the script's.

    Attributes:
        name: The result that was chosen.
        result: What was published.
        short: Whether only a short run is wanted, as the tests do, with the looser bound ``result.short_bar``.
    """

    def __init__(self, *names: str, arguments: Sequence[str] | None = None) -> None:
        parser, given = options.read(names, arguments)
        self.name: str = given.name
        self.result: Result = RESULTS[self.name]
        self.short: bool = given.short
        self._file = str(given.folder / (self.name + "-short" * self.short))
        self._deadline = time.monotonic() + 60 * given.minutes
        info = distributed.runtime_info()
        self._segment = Segment(info.size, _cores(info), machine()["processor"], dict(info.versions))
        self._log = Log()
        self._samples = 0
        try:
            given.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"argument --folder: {str(given.folder)!r} can't be made: {error.strerror}. Name another")

    def optimise(self, driver: Any, steps: int, *, stage: str = "", recorded: bool = True, save_every: int = 20) -> Any:
        """Runs a driver up to a number of steps: from its last checkpoint, if there is one.

        Stopped and continued, it makes the steps that one ``driver.run(steps)`` makes.

        Args:
            driver: A driver of NetKet's or of ours.
            steps: How many steps it has made at the end, earlier runs included.
            stage: What tells the checkpoints of several drivers apart that run one after another.
            recorded: Whether the energies belong into the log: those of a smaller system don't. Their cost always does.
            save_every: After how many steps there is a checkpoint.

        Returns:
            The driver at the end, with its state: another one than was given, where there was a checkpoint.

        Raises:
            SystemExit: ``--minutes`` are over before the last step.
        """
        checkpoint = Path(f"{self._file}{'-' * bool(stage)}{stage}.mpack")
        if distributed.broadcast(checkpoint.exists()):
            found = distributed.load(checkpoint, like={"driver": driver, "log": ""})
            driver, self._log = found["driver"], Log.from_json(found["log"])
            distributed.print_once(f"{checkpoint.name}: {driver.step_count} steps have been made")
        self._samples = driver.state.n_samples
        while driver.step_count < steps:
            self._stop_if_late(f"after {driver.step_count} steps")
            self._advance(driver, min(save_every, steps - driver.step_count), recorded)
            distributed.save(checkpoint, {"driver": driver, "log": self._log.to_json()})
            self._write()
        return driver

    def _advance(self, driver: Any, steps: int, recorded: bool) -> None:
        history = nk.logging.RuntimeLog()
        begin = time.perf_counter()
        driver.run(steps, out=history, show_progress=False)
        energies = history.data["Energy"]
        self._add(energies, time.perf_counter() - begin, steps, recorded)
        scale = self.result.scale if recorded else 1 / driver.state.hilbert.size
        value, error = (scale * float(np.real(np.asarray(energies[key])[-1])) for key in ("Mean", "Sigma"))
        distributed.print_once(
            f"step {driver.step_count}: energy {value:.6f} +- {error:.6f}{'' if recorded else ' per site'}, "
            f"{self._log.total_core_hours:.3f} core-hours",
            flush=True,
        )

    def evolve(self, state: Any, driver_of: Callable[[Any, int], Any], steps: int, *, save_every: int = 10) -> Any:
        """Runs a driver of dynamics, from the last checkpoint, if there is one.

        Args:
            state: The state at first.
            driver_of: ``driver_of(state, made)`` gives NetKet's ``TDVP``, or one like it, after so many steps. They
                have the same length, and remember nothing of those before.
            steps: How many steps it has made at the end, earlier runs included.
            save_every: After how many steps there is a checkpoint.

        Returns:
            The state at the end: another one than was given, where there was a checkpoint.

        Raises:
            SystemExit: ``--minutes`` are over before the last step.
        """
        checkpoint, made = Path(f"{self._file}.mpack"), 0
        if distributed.broadcast(checkpoint.exists()):
            found = distributed.load(checkpoint, like={"state": state, "made": np.array(0), "log": ""})
            state, made, self._log = found["state"], int(found["made"]), Log.from_json(found["log"])
            distributed.print_once(f"{checkpoint.name}: {made} steps have been made")
        self._samples = state.n_samples
        driver = driver_of(state, made)
        while made < steps:
            self._stop_if_late(f"after {made} steps")
            begin, count = time.perf_counter(), min(save_every, steps - made)
            # Whole steps are made until this time is over: not a multiple of their length, which rounding may miss.
            driver.run((count - 0.5) * driver.dt, show_progress=False)
            made += count
            self._add({}, time.perf_counter() - begin, count, recorded=False)
            distributed.print_once(f"t = {driver.t:.6g}, {self._log.total_core_hours:.3f} core-hours", flush=True)
            distributed.save(checkpoint, {"state": state, "made": np.array(made), "log": self._log.to_json()})
            self._write()
        return state

    def _stop_if_late(self, where: str) -> None:
        if distributed.broadcast(time.monotonic() > self._deadline):
            distributed.print_once(f"stopped {where}: the same command goes on")
            raise SystemExit

    def conclude_energy(
        self,
        state: Any,
        hamiltonian: Any,
        n_samples: int,
        *,
        lanczos_steps: int = 0,
        machine_pow: float | None = None,
        **facts: Any,
    ) -> None:
        """The energy with more samples, and the last line.

        Args:
            state: The variational state.
            hamiltonian: The operator.
            n_samples: How many samples to take.
            lanczos_steps: How many Lanczos steps the state makes before; their coefficients have a quarter as many
                samples of their own.
            machine_pow: The power of |ψ| that these samples are drawn from, of :class:`LanczosStep`.
            facts: What else belongs into the log.
        """
        begin = time.perf_counter()
        if lanczos_steps:
            step = LanczosStep(hamiltonian, lanczos_steps)
            state.n_samples = n_samples // 4
            coefficients = step.coefficients(state, machine_pow=machine_pow)
            state.n_samples = n_samples
            energy = step.expect(state, coefficients, machine_pow=machine_pow)
            facts["lanczos_steps"] = lanczos_steps
            facts["before"] = self.result.scale * float(state.expect(hamiltonian).mean.real)
        else:
            state.n_samples = n_samples
            energy = state.expect(hamiltonian)
        self._add({}, time.perf_counter() - begin, 0, recorded=False)
        self.conclude(
            float(energy.mean.real),
            float(energy.error_of_mean),
            parameters=_real_numbers(state.parameters),
            samples=state.n_samples,
            variance=float(energy.variance),
            **facts,
        )

    def conclude(self, value: float, error: float, **facts: Any) -> None:
        """Writes what was found to the log, and prints the last line.

        Args:
            value: What was found, in the script's units: the whole system's energy in those of its operator.
            error: Its statistical error.
            facts: What else belongs into the log, such as the number of ``parameters``.
        """
        result, log = self.result, self._log
        value, error = value * result.scale, error * result.scale
        log.final = {"value": value, "error": error, "samples_of_a_step": self._samples, **facts}
        self._write()
        reference = result.references[0]
        distributed.print_once(
            f"energy {value:.7f} +- {error:.7f}, {reference.method} {reference.value:.7f}, "
            f"difference {value - reference.value:.1e}, ranks {self._segment.ranks}, "
            f"core-hours {log.total_core_hours:.3f}"
        )

    def _add(self, statistics: Any, seconds: float, steps: int, recorded: bool) -> None:
        if not any(segment is self._segment for segment in self._log.segments):
            self._log.segments.append(self._segment)
        if recorded:
            self._log.add(statistics, seconds)
        else:
            self._log.add_cost(steps, seconds)

    def _write(self) -> None:
        if distributed.is_main():
            text = json.dumps(self._log.for_page(self.result.scale), ensure_ascii=False)
            write(Path(f"{self._file}.json"), f"{text}\n".encode())


def _cores(info: RuntimeInfo) -> int:
    """How many cores the ranks have together, each counted once."""
    by_rank = [set(own) for own in info.cores]
    bound = sum(map(len, by_rank))
    return bound if info.nodes > 1 and info.binding != "none" else len(set.union(*by_rank)) * info.nodes


def _real_numbers(parameters: Any) -> int:
    return sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in jax.tree.leaves(parameters))
