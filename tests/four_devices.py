"""What `operator/test_table.py` wants to know of each example from a process of its own, with four devices.

These are the connected elements of sharded samples, and the classes, for which NetKet's operators have to be made: that
takes numba long, which is why it compiles nothing here.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import ferroket as fk
from example_operators import EXAMPLES, NETKET, Example

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
RESULTS = ("xp", "mels", "n_conn")
N_SAMPLES = 16


def some_samples(hilbert: Any) -> np.ndarray:
    """As many samples as four devices can share, from all over the Hilbert space."""
    states = np.asarray(hilbert.all_states())
    return states[np.linspace(0, len(states) - 1, N_SAMPLES).astype(int)]


@jax.jit
def elements(operator: Any, x: Any) -> tuple[jax.Array, ...]:
    return (*operator.get_conn_padded(x), operator.n_conn(x))


def is_netkets(example: Example) -> bool:
    """Whether NetKet's operator is of the class that the example names, or a local operator that a function gives."""
    named: Any = NETKET
    for part in example.netket.split("."):
        named = getattr(named, part)
    return isinstance(example.theirs, named if isinstance(named, type) else NETKET.LocalOperator)


def main(file: Path) -> None:
    assert jax.device_count() == 4
    use_mesh = jax.set_mesh if hasattr(jax, "set_mesh") else jax.sharding.use_mesh
    mesh = Mesh(np.array(jax.devices()), ("S",))
    by_batch = NamedSharding(mesh, P("S"))
    found: dict[str, np.ndarray] = {}
    for example in EXAMPLES:
        operator = example.ours()
        samples = some_samples(operator.hilbert)
        with use_mesh(mesh):
            sharded = jax.device_put(samples, by_batch)
            compiled = elements.lower(operator, sharded).compile()
            results = compiled(operator, sharded)
        hlo = compiled.as_text()
        # XLA doesn't care where arrays without elements are.
        stays = all(result.sharding.is_equivalent_to(by_batch, result.ndim) for result in results if result.size)
        found[f"{example.title}/collectives"] = np.array([name for name in COLLECTIVES if name in hlo], str)
        found[f"{example.title}/in Rust"] = np.array("ferroket_" in hlo)
        found[f"{example.title}/stays sharded"] = np.array(stays)
        found[f"{example.title}/is NetKet's"] = np.array(is_netkets(example))
        found[f"{example.title}/accelerated"] = np.array(type(fk.accelerate(example.theirs)).__name__)
        found |= {f"{example.title}/{name}": np.asarray(y) for name, y in zip(RESULTS, results, strict=True)}
    np.savez(file, **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
