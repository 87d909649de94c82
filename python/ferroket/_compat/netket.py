"""The operators that only some versions of NetKet have, or have in other places."""

from typing import Any

import netket as nk
from netket.operator import DiscreteJaxOperator, permutation

PermutationOperatorBase: Any = permutation.PermutationOperator.__base__

ParticleNumberConserving: Any = nk.experimental.operator.ParticleNumberConservingFermioperator2nd
ParticleNumberAndSpinConserving: Any = nk.experimental.operator.ParticleNumberAndSpinConservingFermioperator2nd
FermiHubbard: Any = getattr(nk.operator, "FermiHubbardJax", None) or nk.experimental.operator.FermiHubbardJax

SPIN_FLIPS: tuple[Any, ...] = ()
"""The class of spin flips: there is one from NetKet 3.22 on."""
EMBEDDINGS: tuple[Any, ...] = ()
"""The classes of operators on a part of a system, likewise."""

try:
    from netket._src.operator.spin_flip import SpinFlipOperator
    from netket.operator._embed import EmbedDiscreteJaxOperator, EmbedGenericOperator
    from netket.operator._embed.discrete_operator import EmbedDiscreteOperator
except ImportError:
    pass
else:
    SPIN_FLIPS = (SpinFlipOperator,)
    EMBEDDINGS = (EmbedDiscreteJaxOperator, EmbedDiscreteOperator, EmbedGenericOperator)

SpinFlipBase: Any = next(iter(SPIN_FLIPS), DiscreteJaxOperator)
"""What our spin flips are instances of."""
