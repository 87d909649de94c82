"""Operators made of operators."""

from collections.abc import Sequence
from dataclasses import dataclass

from reference.core import Configuration, Reference, Row, Sites, configurations, empty_row


@dataclass(frozen=True, eq=False)
class Sum(Reference):
    """Σ_i coefficient_i O_i."""

    operators: Sequence[Reference]
    coefficients: Sequence[complex]

    @property
    def sites(self) -> Sites:  # type: ignore[override]
        return self.operators[0].sites

    def row(self, sample: Configuration) -> Row:
        row = empty_row()
        for operator, coefficient in zip(self.operators, self.coefficients, strict=True):
            for configuration, mel in operator.row(sample).items():
                row[configuration] += coefficient * mel
        return row


@dataclass(frozen=True, eq=False)
class Product(Reference):
    """The product of two operators."""

    left: Reference
    right: Reference

    @property
    def sites(self) -> Sites:  # type: ignore[override]
        return self.left.sites

    def row(self, sample: Configuration) -> Row:
        row = empty_row()
        for between, left in self.left.elements(sample).items():
            for configuration, right in self.right.elements(between).items():
                row[configuration] += left * right
        return row


@dataclass(frozen=True, eq=False)
class Transposed(Reference):
    """⟨σ|Oᵀ|σ'⟩ = ⟨σ'|O|σ⟩, found by looking at all σ'."""

    operator: Reference

    @property
    def sites(self) -> Sites:  # type: ignore[override]
        return self.operator.sites

    def row(self, sample: Configuration) -> Row:
        rows = {configuration: self.operator.row(configuration) for configuration in configurations(self.sites)}
        return {configuration: row[sample] for configuration, row in rows.items() if sample in row}


@dataclass(frozen=True, eq=False)
class Adjoint(Reference):
    """The conjugate of the transpose."""

    operator: Reference

    @property
    def sites(self) -> Sites:  # type: ignore[override]
        return self.operator.sites

    def row(self, sample: Configuration) -> Row:
        row = Transposed(self.operator).row(sample)
        return {configuration: complex(mel).conjugate() for configuration, mel in row.items()}


@dataclass(frozen=True, eq=False)
class Embedded(Reference):
    """An operator on some neighbouring sites of a larger system."""

    sites: Sites
    operator: Reference
    first: int

    def row(self, sample: Configuration) -> Row:
        last = self.first + len(self.operator.sites)
        part = self.operator.row(sample[self.first : last])
        return {(*sample[: self.first], *inner, *sample[last:]): mel for inner, mel in part.items()}
