"""What airspeed velocity measures at each commit: cases of ``ferroket bench``, beside NetKet's on the same machine."""

from importlib import import_module

STATES = ["Heisenberg 10×10, RBM α=1", "Heisenberg 10×10, MLP (100, 200, 200)", "Fermi-Hubbard 6×6, Slater2nd"]


class _Cases:
    """Seconds of cases, ours and the peer's: where both change, the machine does."""

    timeout = 1800
    unit = "s"
    param_names = ("case", "whose")
    benchmark = ""

    def track_seconds(self, case: str, whose: str) -> float:
        """The time of one case.

        Args:
            case: Its name.
            whose: "Ferroket" or its peer.
        """
        rows = import_module(f"ferroket.bench.{self.benchmark}").run(cases=case, rounds=1).rows
        return float(rows[0].seconds[whose])


class ConnectedElements(_Cases):
    """Connected elements of Hamiltonians."""

    benchmark = "operators"
    params = (["Ising chain 128", "Heisenberg 10×10", "Fermi-Hubbard 8×8"], ["Ferroket", "NetKet JAX"])


class LocalEnergies(_Cases):
    """Local energies of states."""

    benchmark = "local_energy"
    params = (STATES, ["Ferroket", "NetKet"])


class Sampling(_Cases):
    """Markov chains of states."""

    benchmark = "sampler"
    params = (STATES, ["Ferroket", "NetKet"])


class Steps(_Cases):
    """Whole steps of VMC_SR."""

    benchmark = "vmc"
    params = ([f"{name}, 1 rank" for name in [*STATES, "Heisenberg 10×10, ViT"]], ["Ferroket", "NetKet"])
