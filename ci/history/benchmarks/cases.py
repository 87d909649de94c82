"""Cases of ``ferroket bench``, beside their peers on the same machine: where both change, the machine does."""

from importlib import import_module

STATES = ["Heisenberg 10×10, RBM α=1", "Fermi-Hubbard 6×6, Slater2nd"]
MLP = "Heisenberg 10×10, MLP (100, 200, 200)"
CASES = [
    *(("operators", case) for case in ("Ising chain 128", "Heisenberg 10×10", "Fermi-Hubbard 8×8")),
    *(("local_energy", case) for case in [*STATES, "Heisenberg 10×10, MLP"]),
    *(("sampler", case) for case in [*STATES, MLP]),
    *(("vmc", f"{case}, 1 rank") for case in [*STATES, MLP, "Heisenberg 10×10, ViT"]),
]
OURS = "Ferroket"


class Cases:
    """The first row of each case: seconds of ours, and of the peer that comes next."""

    params = ([f"{benchmark}: {case}" for benchmark, case in CASES], [OURS, "peer"])
    param_names = ("case", "whose")
    unit = "s"

    def setup_cache(self) -> dict[str, dict[str, float]]:
        """The times of all cases."""
        found = {}
        for benchmark, case in CASES:
            seconds = import_module(f"ferroket.bench.{benchmark}").run(cases=case, rounds=1).rows[0].seconds
            peer = next(time for whose, time in seconds.items() if whose != OURS)
            found[f"{benchmark}: {case}"] = {OURS: float(seconds[OURS]), "peer": float(peer)}
        return found

    setup_cache.timeout = 7200  # type: ignore[attr-defined]

    def track_seconds(self, found: dict[str, dict[str, float]], case: str, whose: str) -> float:
        """The time of one case."""
        return found[case][whose]
