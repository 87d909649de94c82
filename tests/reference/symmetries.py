"""Symmetries: one element a row."""

from collections.abc import Sequence
from dataclasses import dataclass

from reference.core import Configuration, Reference, Row, Sites


@dataclass(frozen=True, eq=False)
class Permutation(Reference):
    """P|σ⟩ = |σ'⟩ with σ'[i] = σ[g⁻¹(i)], so ⟨σ|P|σ'⟩ = 1 for σ'[i] = σ[g(i)]."""

    sites: Sites
    image: Sequence[int]

    def row(self, sample: Configuration) -> Row:
        return {tuple(sample[i] for i in self.image): 1}


@dataclass(frozen=True, eq=False)
class FermionPermutation(Reference):
    """P c†_i P⁻¹ = c†_{g(i)}: beside the permutation of the orbitals, the sign of putting the operators in order."""

    sites: Sites
    image: Sequence[int]

    def row(self, sample: Configuration) -> Row:
        # The fermions of σ come from the orbitals g⁻¹(i); their order there gives the sign.
        sources = [list(self.image).index(i) for i, occupied in enumerate(sample) if occupied]
        swaps = sum(a > b for k, a in enumerate(sources) for b in sources[k + 1 :])
        return {tuple(sample[i] for i in self.image): (-1) ** swaps}


@dataclass(frozen=True, eq=False)
class SpinFlip(Reference):
    """All spins reversed; for fermions of spin ½ the two spins exchanged, with the sign of reordering."""

    sites: Sites
    fermions: bool = False

    def row(self, sample: Configuration) -> Row:
        if not self.fermions:
            return {tuple(-value for value in sample): 1}
        n = len(sample) // 2
        up, down = sample[:n], sample[n:]
        return {(*down, *up): (-1) ** int(sum(up) * sum(down))}
