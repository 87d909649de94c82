"""What an accelerated operator is: a definition, and a compiled form that is made from it."""

from typing import Any, ClassVar

import jax
from netket.operator import DiscreteJaxOperator

from ferroket.operator.compiled import Form
from ferroket.operator.constraints.hilbert import user_constraints
from ferroket.operator.constraints.projected_form import projected
from ferroket.operator.sums.term_list import TermList
from ferroket.operator.validation import is_traced


class Compiled(DiscreteJaxOperator):
    """An operator whose compiled form is made from its definition when it is first needed.

    A family gives :meth:`_compile`, :meth:`_find_hermitian` and, where its sites have two local states, :meth:`_terms`.
    """

    _definition: ClassVar[tuple[str, ...]]
    """The attributes that only a definition has."""

    _netkets: ClassVar[tuple[Any, ...]] = ()
    """The classes whose instances NetKet's arithmetic of this family takes; none, where that isn't used."""

    _is_local: ClassVar[bool] = False
    """Whether it is by nature a sum of local matrices, which its sums and products with others such are, too."""

    _form_: Form | None = None
    _hermitian: bool | None = None
    _key_: Any = None
    _is_compiled_only: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        user_constraints(self.hilbert)  # raises the error if there is one that can't be kept

    # What a family gives

    def _compile(self) -> Form:
        """The compiled form."""
        raise NotImplementedError

    def _find_hermitian(self) -> bool:
        """Whether the operator equals its adjoint."""
        raise NotImplementedError

    def _terms(self) -> TermList | None:
        """The operator as a sum of few non-branching terms, if all sites have two local states; None if it isn't."""
        return None

    # The form

    @property
    def _form(self) -> Form:
        if self._form_ is None:
            form = projected(self._compile(), self.hilbert)
            if is_traced(*jax.tree.leaves(form)):
                return form  # its coefficients are those of one trace alone
            self._form_ = form
        return self._form_

    def _setup(self, force: bool = False) -> None:
        """Compiles the operator; NetKet's wrappers call this outside of transformed functions."""
        del force  # nothing to gain: what changes the definition forgets the form
        _ = self._form

    def _reset_caches(self) -> None:
        """Forgets what has been derived from the definition, since that has changed."""
        reset = getattr(super(), "_reset_caches", None)
        if reset is not None:
            reset()
        self._form_ = self._hermitian = self._key_ = None

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._definition and self.__dict__.get("_is_compiled_only"):
            raise RuntimeError(
                f"this {type(self).__name__} has been through a JAX transformation, such as jax.jit, and is only its "
                f"compiled arrays there: {name.lstrip('_')!r} isn't known. Do sums, products, conversions and the like "
                "outside of the transformed function"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def dtype(self) -> Any:
        """The dtype of the matrix elements."""
        return self._dtype

    @property
    def is_hermitian(self) -> bool:
        """Whether the operator is hermitian."""
        if self._hermitian is None:
            self._hermitian = bool(self._find_hermitian())
        return self._hermitian
