"""From NetKet's operators to ours."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import netket as nk
from netket.operator import permutation as netkets_permutation
from netket.operator._prod.base import ProductOperator
from netket.operator._sum.base import SumOperator

from ferroket._compat import netket as netkets
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.combining import add, as_local, multiply, terms_of
from ferroket.operator.algebra.sectors import own_constraints
from ferroket.operator.algebra.validation import has_two_states
from ferroket.operator.bose_hubbard import BoseHubbard
from ferroket.operator.conserving_fermion import (
    FermiHubbard,
    ParticleNumberAndSpinConservingFermioperator2nd,
    ParticleNumberConservingFermioperator2nd,
)
from ferroket.operator.fermion_operator import FermionOperator2nd
from ferroket.operator.ising import Ising
from ferroket.operator.local_operator import LocalOperator
from ferroket.operator.pauli_strings import PauliStrings
from ferroket.operator.permutation import PermutationOperator, PermutationOperatorFermion, SpinFlipOperator
from ferroket.operator.term_sum import TermSum


def accelerate(operator: Any) -> Any:
    """The accelerated operator that equals a NetKet operator.

    Sums, products, embeddings and lazy wrappers are converted part by part, and become a single operator where one
    can hold them.

    Args:
        operator: An operator of NetKet, in numba or JAX, or one of ours, which is returned as it is.

    Returns:
        An operator with the same matrix elements, of the same dtype.

    Raises:
        TypeError: If there is no accelerated version of exactly this class, or of that of one of its parts.
    """
    convert = _ACCELERATED.get(type(operator))
    if convert is None:
        convert = next((of_base for base, of_base in _BY_BASE.items() if isinstance(operator, base)), None)
    if convert is None:
        raise _unknown(operator)
    return convert(operator)


def _unknown(operator: Any) -> TypeError:
    cls = type(operator)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if isinstance(operator, nk.operator.LocalLiouvillian | nk.operator.AbstractSuperOperator):
        return TypeError(
            f"can't accelerate a {name}: superoperators aren't supported. The operator works as it is; accelerate the "
            "Hamiltonian and the observables"
        )
    if isinstance(operator, nk.operator.ContinuousOperator):
        return TypeError(
            f"can't accelerate a {name}: operators on continuous spaces have derivatives, and no connected elements. "
            "The operator works as it is"
        )
    supported = ", ".join(sorted({known.__name__ for known in _ACCELERATED}))
    return TypeError(
        f"can't accelerate a {name}: there are accelerated versions of exactly these "
        f"classes: {supported}. The operator works as it is; build it from one of them to have it accelerated."
    )


def _itself(operator: Any) -> Any:
    return operator


def _sum(operator: Any) -> Any:
    parts = [_scaled(accelerate(part), c) for part, c in zip(operator.operators, operator.coefficients, strict=True)]
    total = reduce(add_any, parts)
    return (
        total if isinstance(total, SumOperator) or total.dtype == operator.dtype else _in_dtype(total, operator.dtype)
    )


def _scaled(part: Any, coefficient: Any) -> Any:
    number = complex(coefficient)
    if number == 1:
        return part
    return part * (number if number.imag else number.real)


def add_any(a: Any, b: Any) -> Any:
    """The sum of two accelerated operators, of one family or of two."""
    return a + b if isinstance(a, Accelerated) else add(a, b)


def _in_dtype(operator: Any, dtype: Any) -> Any:
    """The operator in another dtype, if that holds it."""
    try:
        return operator.copy(dtype=dtype)
    except (TypeError, ValueError):
        return operator


def _product(operator: Any) -> Any:
    parts = [accelerate(part) for part in operator.operators]
    product = reduce(lambda a, b: a @ b if isinstance(a, Accelerated) else multiply(a, b), parts)
    return _scaled(product, operator.coefficient)


def _embedding(operator: Any) -> Any:
    part = accelerate(operator.operator)
    hilbert, subspace = operator.hilbert, operator.subspace
    first = sum(space.size for space in hilbert.subspaces[:subspace])
    local = as_local(part)
    if local is not None:
        sites = [tuple(first + site for site in where) for where in local.acting_on]
        embedded = LocalOperator(hilbert, constant=local.constant, dtype=local.dtype, mel_cutoff=local.mel_cutoff)
        embedded._operators_dict = dict(zip(sites, local.operators, strict=True))
        return embedded
    terms = terms_of(part)
    if terms is not None and has_two_states(hilbert):
        return TermSum(hilbert, terms.embedded(hilbert.size, first), part.dtype)
    return nk.operator.EmbedOperator(hilbert, part, subspace)


def _transposed(operator: Any) -> Any:
    return accelerate(operator.parent).transpose(concrete=True)


def _adjoint(operator: Any) -> Any:
    part = accelerate(operator.parent)
    return part.H if isinstance(part, Accelerated) else nk.operator.Adjoint(part)


def _squared(operator: Any) -> Any:
    part = accelerate(operator.parent)
    # Where O is restricted to the space, P O P is what NetKet squares, and not O.
    merges = isinstance(part, Accelerated) and not own_constraints(part.hilbert)
    return part.H @ part if merges else nk.operator.Squared(part)


# By exact type: a subclass may have changed the operator, and must not be replaced behind its author's back.
_ACCELERATED: dict[type, Callable[[Any], Any]] = {
    nk.operator.IsingJax: Ising.from_netket,
    nk.operator.IsingNumba: Ising.from_netket,
    nk.operator.LocalOperatorJax: LocalOperator.from_netket,
    nk.operator.LocalOperatorNumba: LocalOperator.from_netket,
    nk.operator.PauliStringsJax: PauliStrings.from_netket,
    nk.operator.PauliStringsNumba: PauliStrings.from_netket,
    nk.operator.BoseHubbardJax: BoseHubbard.from_netket,
    nk.operator.BoseHubbardNumba: BoseHubbard.from_netket,
    nk.operator.FermionOperator2ndJax: FermionOperator2nd.from_netket,
    nk.operator.FermionOperator2ndNumba: FermionOperator2nd.from_netket,
    netkets_permutation.PermutationOperator: PermutationOperator.from_netket,
    netkets_permutation.PermutationOperatorFermion: PermutationOperatorFermion.from_netket,
    netkets.ParticleNumberConserving: ParticleNumberConservingFermioperator2nd.from_netket,
    netkets.ParticleNumberAndSpinConserving: ParticleNumberAndSpinConservingFermioperator2nd.from_netket,
    netkets.FermiHubbard: ParticleNumberAndSpinConservingFermioperator2nd.from_netket,
    **dict.fromkeys(netkets.SPIN_FLIPS, SpinFlipOperator.from_netket),
    **dict.fromkeys(netkets.EMBEDDINGS, _embedding),
    **dict.fromkeys(
        (
            Ising,
            LocalOperator,
            PauliStrings,
            BoseHubbard,
            FermionOperator2nd,
            ParticleNumberConservingFermioperator2nd,
            ParticleNumberAndSpinConservingFermioperator2nd,
            FermiHubbard,
            TermSum,
            PermutationOperator,
            PermutationOperatorFermion,
            SpinFlipOperator,
        ),
        _itself,
    ),
}

# These are abstract, or have a class of their own for each part.
_BY_BASE: dict[type, Callable[[Any], Any]] = {
    SumOperator: _sum,
    ProductOperator: _product,
    nk.operator.Transpose: _transposed,
    nk.operator.Adjoint: _adjoint,
    nk.operator.Squared: _squared,
}
