"""What was published, with its sources, and how near a run has to come.

Energies are those of the ground state. VarBench is D. Wu et al., Science 386, 296 (2024), whose tables are at
https://github.com/varbench/varbench.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """A published number.

    Attributes:
        method: How it was found.
        value: The number.
        source: Where it stands.
        error: Its statistical error, if it has one.
    """

    method: str
    value: float
    source: str
    error: float = 0.0


@dataclass(frozen=True)
class Result:
    """A published result, and the script that reproduces it.

    Attributes:
        title: The system.
        ansatz: The wave function of the script.
        script: Its file in ``examples/published``, without the ending.
        unit: What the numbers are, for readers.
        scale: What the script's own values are multiplied with for that.
        references: The literature; the first is what the last line of a run compares with.
        bar: What a run has to reach: at most this.
        short_bar: What a short run has to reach.
    """

    title: str
    ansatz: str
    script: str
    unit: str
    scale: float
    references: tuple[Reference, ...]
    bar: float
    short_bar: float

    @property
    def lowest(self) -> float:
        """The lowest of the published numbers."""
        return min(reference.value for reference in self.references)


_VARBENCH = "VarBench, D. Wu et al., Science 386, 296 (2024)"
_CHEN_HEYL = "A. Chen and M. Heyl, Nat. Phys. 20, 1476 (2024), arXiv:2302.01941"
_CHOO = "K. Choo et al., Phys. Rev. B 100, 125124 (2019), arXiv:1903.06713"
_ROBLEDO_MORENO = "J. Robledo Moreno et al., Proc. Natl. Acad. Sci. 119, e2122059119 (2022), in VarBench"
_NOMURA_IMADA = "Y. Nomura and M. Imada, Phys. Rev. X 11, 031034 (2021), arXiv:2005.14142"
_SQUARE_QMC = Reference("quantum Monte Carlo", -0.67155267, _CHEN_HEYL, 5e-8)
_SQUARE_RBM = Reference(
    "RBM α = 1, without symmetries", -265.7726 / 400, f"{_VARBENCH}, Heisenberg/square_100_P", 1.5e-5
)
_SITE = "per site, J S·S"


def _rbm(lattice: str, alpha: int, references: tuple[Reference, ...], bar: float, short_bar: float) -> Result:
    sites = 40 if lattice == "chain of 40" else 100
    title = f"Heisenberg, {lattice}"
    return Result(
        title, f"RBM α = {alpha}, translations", "heisenberg_rbm", _SITE, 1 / sites, references, bar, short_bar
    )


_BETHE = Reference("exact", -0.4436630697, "Bethe's equations for 40 spins, solved in tests/published")

RESULTS: dict[str, Result] = {
    "ising-chain-32": Result(
        "Ising chain of 32, h = 1",
        "RBM α = 8, translations",
        "ising_chain",
        "total",
        1.0,
        (
            Reference("exact", -40.76003249419, f"{_VARBENCH}, TFIsing/chain_32_P_1; free fermions"),
            Reference("dense network", -40.760008, f"{_VARBENCH}, TFIsing/chain_32_P_1", 5.8e-6),
            Reference("RBM α = 1", -40.75763, f"{_VARBENCH}, TFIsing/chain_32_P_1", 1.4e-4),
        ),
        bar=-40.76003249 * (1 - 2e-6),
        short_bar=-40.70,
    ),
    **{
        f"heisenberg-chain-40-rbm-{alpha}": _rbm("chain of 40", alpha, (_BETHE,), bar, short_bar)
        for alpha, bar, short_bar in ((1, -0.4434, -0.442), (2, -0.44362, -0.442), (4, -0.44365, -0.442))
    },
    **{
        f"heisenberg-square-100-rbm-{alpha}": _rbm(
            "square 10×10", alpha, (_SQUARE_QMC, _SQUARE_RBM), _SQUARE_RBM.value, short_bar
        )
        for alpha, short_bar in ((1, -0.65), (2, -0.65), (4, -0.65))
    },
    "heisenberg-square-100-deep": Result(
        "Heisenberg, square 10×10",
        "residual network of convolutions, space group",
        "heisenberg_deep",
        _SITE,
        1 / 100,
        (
            _SQUARE_QMC,
            Reference("residual network", -0.67155260, _CHEN_HEYL, 3e-8),
            Reference("symmetrised RBM", -0.671519, "H. Chen et al., arXiv:2206.14307", 4e-6),
            Reference("RNN", -0.67151, "M. S. Moss et al., arXiv:2502.17144", 2e-5),
            Reference("CNN", -0.67135, _CHOO, 1e-5),
        ),
        bar=-0.67150,
        short_bar=-0.60,
    ),
    "j1-j2-square-36": Result(
        "J1-J2, square 6×6, J2 = J1 / 2",
        "pairs and an RBM, projected, a Lanczos step",
        "j1j2_projected",
        _SITE,
        1 / 36,
        (
            Reference("exact", -72.548590160286 / 144, f"{_VARBENCH}, J1J2/square_36_P_0.5"),
            Reference("RBM and pairs, projected", -72.54722 / 144, f"{_VARBENCH}, J1J2/square_36_P_0.5", 1.1e-6),
            Reference("CNN", -0.50185, _CHOO, 1e-5),
            Reference("projected BCS state", -72.167 / 144, f"{_VARBENCH}, J1J2/square_36_P_0.5", 2.1e-5),
        ),
        bar=-0.50378,
        short_bar=-0.498,
    ),
    "j1-j2-square-100": Result(
        "J1-J2, square 10×10, J2 = J1 / 2",
        "singlet pairs, a Lanczos step",
        "j1j2_square",
        _SITE,
        1 / 100,
        (
            Reference("residual network", -0.4976921, _CHEN_HEYL, 4e-7),
            Reference(
                "vision transformer", -0.497634, "R. Rende et al., Commun. Phys. 7, 260 (2024), arXiv:2310.05715", 1e-6
            ),
            Reference("RBM and pairs, projected", -0.497629, _NOMURA_IMADA, 1e-6),
            Reference("GCNN", -0.497437, "C. Roth, A. Szabó and A. MacDonald, Phys. Rev. B 108, 054410 (2023)", 7e-6),
            Reference("CNN", -0.49516, _CHOO, 1e-5),
            Reference("projected BCS state", -198.060 / 400, f"{_VARBENCH}, J1J2/square_100_P_0.5", 2.3e-5),
        ),
        bar=-0.4970,
        short_bar=-0.49,
    ),
    "heisenberg-triangular-36": Result(
        "Heisenberg, triangular 6×6",
        "residual network of convolutions, space group",
        "heisenberg_triangular",
        _SITE,
        1 / 36,
        (
            Reference("exact", -80.6937689612426 / 144, f"{_VARBENCH}, Heisenberg/triangular_36_P"),
            Reference("GCNN", -0.560313, "C. Roth, A. Szabó and A. MacDonald, Phys. Rev. B 108, 054410 (2023)", 3e-6),
            Reference(
                "DMRG, bond dimension 2048", -80.36672248793934 / 144, f"{_VARBENCH}, Heisenberg/triangular_36_P"
            ),
        ),
        bar=-0.5595,
        short_bar=-0.53,
    ),
    "hubbard-square-16": Result(
        "Hubbard, square 4×4, U = 8, 5 + 5",
        "pairs, Gutzwiller, Jastrow, space group",
        "hubbard_square",
        "total",
        1.0,
        (Reference("exact", -17.51036669487866, f"{_VARBENCH}, Hubbard/square_16_P_5_8"),),
        bar=-17.510367 * (1 - 1e-3),
        short_bar=-17.0,
    ),
    "hubbard-cylinder-64": Result(
        "Hubbard, cylinder 4×16, U = 8, 28 + 28",
        "neural backflow, Gutzwiller, Jastrow",
        "hubbard_cylinder",
        "per site",
        1 / 64,
        (
            Reference(
                "DMRG, bond dimension 10 000", -48.0533 / 64, f"{_VARBENCH}, Hubbard/rectangular-4x16_64_PO_28_8"
            ),
            Reference("hidden fermions", -47.782 / 64, _ROBLEDO_MORENO, 0.005 / 64),
        ),
        bar=-0.71,
        short_bar=-0.58,
    ),
    "ising-quench-36": Result(
        "Ising, square 6×6, from all spins along x to h = 6.088",
        "Jastrow factors of two and four spins, space group",
        "ising_quench",
        "infidelity at t = 1",
        1.0,
        (Reference("exact", 0.0, "evolution of the state in the script"),),
        bar=1e-3,
        short_bar=1e-4,
    ),
}
