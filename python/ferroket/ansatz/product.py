"""``fk.models.Product``."""

from typing import Any

import jax

from ferroket.ansatz.amplitudes import Amplitudes, ProductAmplitudes
from ferroket.ansatz.registry import Almost, Ansatz, of_model, other_type, register
from ferroket.models import Product


class _Product(Ansatz):
    """A product of models whose amplitude ratios are known."""

    name = "Product"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        if reason := other_type(model, Product):
            return reason
        for factor in model.models:
            ansatz, reasons = of_model(factor)
            if ansatz is None:
                return Almost(f"of the product's factors, {reasons[0]}", reasons[0].kind)
        return None

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        reasons = (ansatz.why_not_on(factor, hilbert) for ansatz, factor in _factors(model))
        return next((reason for reason in reasons if reason), None)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        # A module that is a factor twice has one set of parameters, under its first number.
        numbers = (next(n for n, other in enumerate(model.models) if other is factor) for factor in model.models)
        params = (variables["params"].get(f"models_{number}", {}) for number in numbers)
        factors = zip(_factors(model), params, strict=True)
        return ProductAmplitudes(
            tuple(ansatz.amplitudes(factor, {"params": own}, first, step) for (ansatz, factor), own in factors)
        )


def _factors(model: Product) -> list[tuple[Ansatz, Any]]:
    """The factors of a product of known models, and what they are."""
    found = ((of_model(factor)[0], factor) for factor in model.models)
    return [(ansatz, factor) for ansatz, factor in found if ansatz is not None]


register(_Product())
