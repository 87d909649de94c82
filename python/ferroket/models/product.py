"""Products of wave functions."""

from typing import Any

import flax.linen as nn
import jax


class Product(nn.Module):
    """ψ = Π_a ψ_a: ln ψ is the sum of what the models give.

    If all of them are known to Ferroket, their product is, too. The parameters of model a are those named
    ``models_a``.
    """

    models: tuple[Any, ...]
    """Linen modules that give ln ψ_a of configurations ``(..., N)``."""

    def __post_init__(self) -> None:
        """Refuses what gives no ln ψ."""
        self.models = tuple(self.models)
        wrong = [model for model in self.models if not isinstance(model, nn.Module)]
        if wrong or not self.models:
            raise TypeError(
                f"a Product is one of linen modules, such as nk.models.RBM(), at least one, but got {wrong or 'none'}"
            )
        super().__post_init__()

    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of configurations ``(..., N)``, of shape ``(...)``."""
        log_psi: jax.Array = sum(model(x) for model in self.models[1:]) + self.models[0](x)
        return log_psi
