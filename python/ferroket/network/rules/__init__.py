"""What each of JAX's primitives makes of values that depend on the configuration."""

from ferroket.network.reader import Rule
from ferroket.network.rules import elementwise, fourier, matrices, moving, products, sums

RULES: dict[str, Rule] = {
    **moving.RULES,
    **elementwise.RULES,
    **sums.RULES,
    **products.RULES,
    **matrices.RULES,
    **fourier.RULES,
}

__all__ = ["RULES"]
