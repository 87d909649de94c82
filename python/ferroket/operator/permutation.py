"""Operators that put the sites, or their local states, in another order: one connected element each.

The rearrangement is a single gather, which XLA does as fast as anything; the kernels check the samples.
"""

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from netket.hilbert import Fock, Qubit, Spin, SpinOrbitalFermions
from netket.operator import DiscreteJaxOperator
from netket.operator import permutation as netkets_permutation
from netket.utils.group import Permutation
from netket.utils.numbers import is_scalar

from ferroket._compat.netket import PermutationOperatorBase, SpinFlipBase
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.combining import add, multiply, terms_of
from ferroket.operator.algebra.sectors import leaving, sectors
from ferroket.operator.algebra.term_list import TermList
from ferroket.operator.compiled import Form, Tables, Terms, local_states, site_bits
from ferroket.operator.term_sum import TermSum


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("identity", "order", "values"),
    meta_fields=("fermions", "reflected"),
)
@dataclass(frozen=True, eq=False)
class Rearrangement(Form):
    """The compiled form: σ' has at site i what σ has at site ``order[i]``.

    Args:
        identity: The form of the identity, whose kernel checks the samples.
        order: Where the sites of σ' come from, int32 ``(N,)``.
        values: The matrix element, ``(1,)``.
        fermions: Whether it has the sign of reordering the fermions of σ.
        reflected: Whether the local states are reversed besides.
    """

    identity: Form
    order: Any
    values: Any
    fermions: bool
    reflected: bool

    diagonal: ClassVar[bool] = False  # type: ignore[misc]
    max_conn_size: ClassVar[int] = 1  # type: ignore[misc]

    @property
    def sites(self) -> Any:  # type: ignore[override]
        """The local states of the sites."""
        return self.identity.sites

    def mels(self, x: Any) -> jax.Array:
        """The matrix elements of samples ``(..., N)``, of shape ``(..., 1)``."""
        return _padded(self, x)[1]

    def padded(self, x: Any) -> tuple[jax.Array, jax.Array]:
        """The connected elements of samples ``(..., N)``: configurations ``(..., 1, N)`` and elements ``(..., 1)``."""
        return _padded(self, x)

    def on_diagonal(self, x: Any) -> jax.Array:
        """The matrix elements ⟨x|O|x⟩, ``(...)``: those of samples that stay what they are."""
        xp, mels = _padded(self, x)
        return jnp.where((xp[..., 0, :] == jnp.asarray(x)).all(axis=-1), mels[..., 0], 0)

    def count(self, x: Any, off_diagonal_only: bool = False) -> jax.Array:
        """How many matrix elements aren't zero: int32 ``(...)``."""
        return _kept(self, x, off_diagonal_only)[2].astype(jnp.int32)

    def compact(
        self, x: Any, cursor: Any, capacity: int, off_diagonal_only: bool = False
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The connected elements that aren't zero, sample by sample: see :meth:`Form.compact`."""
        if np.ndim(x) != 2:  # noqa: PLR2004
            raise ValueError(
                f"the samples have shape {np.shape(x)}, but the compact form takes a list of them, of shape "
                f"(Ns, {self.n_sites}): reshape them"
            )
        return _compact(self, x, jnp.asarray(cursor[0], jnp.int32), capacity, off_diagonal_only)


@jax.jit
def _padded(form: Rearrangement, x: Any) -> tuple[jax.Array, jax.Array]:
    x = jnp.asarray(x)
    mels = form.identity.mels(x) * form.values
    moved = x.astype(jnp.uint8)[..., form.order].astype(bool) if x.dtype == bool else x[..., form.order]
    if form.reflected:
        states = form.sites
        # Of all kinds alike, since only spins are reflected.
        moved = jnp.asarray(2 * states.starts[0] + (states.sizes[0] - 1) * states.steps[0]).astype(x.dtype) - moved
    if form.fermions:
        # Each pair of fermions that comes to stand the other way round is a sign.
        source = jnp.argsort(form.order)
        ahead = np.triu(np.ones((form.n_sites, form.n_sites), bool), 1)
        swapped = (ahead & (source[:, None] > source[None, :])).astype(jnp.float32)
        occupied = (x == 1).astype(jnp.float32)
        pairs = jnp.einsum("...i,ij,...j->...", occupied, swapped, occupied, precision="highest")
        mels = jnp.where(pairs[..., None] % 2 == 1, -mels, mels)
    return moved[..., None, :], mels


def _kept(form: Rearrangement, x: Any, off_diagonal_only: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    xp, mels = _padded(form, x)
    xp, mels = xp[..., 0, :], mels[..., 0]
    kept = mels != 0
    if off_diagonal_only:
        kept &= (xp != x).any(axis=-1)
    return xp, mels, kept


@functools.partial(jax.jit, static_argnums=(3, 4))
def _compact(
    form: Rearrangement, x: Any, begin: jax.Array, capacity: int, off_diagonal_only: bool
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    x = jnp.asarray(x)
    n_samples = len(x)
    xp, mels, kept = _kept(form, x, off_diagonal_only)
    kept &= jnp.arange(n_samples) >= begin
    # One more than wanted, to know where to go on.
    sample = jnp.flatnonzero(kept, size=capacity + 1, fill_value=n_samples).astype(jnp.int32)
    following = jnp.stack([sample[-1], jnp.zeros((), jnp.int32)])
    sample = sample[:-1]
    used = sample < n_samples
    first = jnp.asarray(local_values(form)).astype(x.dtype)
    if not n_samples:
        return jnp.tile(first, (capacity, 1)), jnp.zeros(capacity, mels.dtype), sample, following
    row = jnp.minimum(sample, n_samples - 1)
    return jnp.where(used[:, None], xp[row], first), jnp.where(used, mels[row], 0), sample, following


def local_values(form: Form) -> np.ndarray:
    """The first local state of each site."""
    starts = np.asarray(form.sites.starts)
    kind = form.sites.kind
    return jnp.asarray(starts)[kind] if np.size(kind) else np.full(form.n_sites, starts[0])


def rearrangement(
    hilbert: Any, order: Any, value: float, dtype: Any, *, fermions: bool, reflected: bool
) -> Rearrangement:
    """The compiled form of such an operator on a Hilbert space; see :class:`Rearrangement`."""
    sites = local_states(hilbert)
    nothing = np.zeros(0, int)
    one = np.ones(1, jnp.dtype(dtype))
    if set(sites.sizes) == {2}:
        no_words = [0]
        identity: Form = Terms.from_masks(sites, no_words, no_words, no_words, no_words, one)
    else:
        zero = np.zeros(1, int)
        identity = Tables.from_arrays(
            sites, np.zeros(2, int), nothing, zero, np.arange(2), np.arange(2), zero, one, diagonal=True
        )
    with jax.ensure_compile_time_eval():
        return Rearrangement(identity, jnp.asarray(order, jnp.int32), jnp.asarray(value * one), fermions, reflected)


class _Rearranging(Accelerated):
    """What permutations and spin flips have in common: multiples of them are sums, since they have no coefficients."""

    _definition = ()

    def _metadata(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, nk.operator.AbstractOperator):
            return NotImplemented
        return add(self, self._adopt(other))

    def __mul__(self, other: Any) -> Any:
        terms = terms_of(self)
        if terms is None or not is_scalar(other):
            return super().__mul__(other)
        return TermSum(self.hilbert, terms, self.dtype) * other

    def __iadd__(self, other: Any) -> Any:
        return self + other

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """No leaves: there are no coefficients."""
        return (), self._metadata()

    def _traced_over(self, order: np.ndarray, value: float, *, fermions: bool, reflected: bool = False) -> complex:
        """The trace: over the configurations that stay the same, which are constant along the cycles of the order."""
        conserved, complete = sectors(self.hilbert)
        if not complete:
            x = np.asarray(self.hilbert.all_states())
            xp, mels = self.get_conn_padded(x)
            return complex(np.asarray(mels)[:, 0][(np.asarray(xp)[:, 0] == x).all(axis=1)].sum())
        counts: dict[tuple[int, ...], float] = {(0,) * len(conserved): value}
        for cycle in _cycles(order):
            size = int(self.hilbert.shape[cycle[0]])
            shares = np.array([len(set(cycle) & set(sector.sites)) for sector in conserved], int)
            following: dict[tuple[int, ...], float] = {}
            for totals, weight in counts.items():
                for state in range(size):
                    if reflected and 2 * state != size - 1:
                        continue
                    total = tuple((np.array(totals, int) + state * shares).tolist())
                    if any(n > sector.total for n, sector in zip(total, conserved, strict=True)):
                        continue
                    sign = -1 if fermions and state and len(cycle) % 2 == 0 else 1
                    following[total] = following.get(total, 0) + sign * weight
            counts = following
        return complex(counts.get(tuple(sector.total for sector in conserved), 0))


def _cycles(order: np.ndarray) -> list[list[int]]:
    rest, cycles = dict(enumerate(order.tolist())), []
    while rest:
        site = next(iter(rest))
        cycle = []
        while site in rest:
            cycle.append(site)
            site = rest.pop(site)
        cycles.append(cycle)
    return cycles


class _Permutation(_Rearranging):
    """What both kinds of permutations have in common."""

    _family = PermutationOperatorBase
    _fermions: ClassVar[bool]

    @property
    def _order(self) -> np.ndarray:
        return np.asarray(self.permutation.permutation_array)

    def _compile(self) -> Form:
        return rearrangement(self.hilbert, self._order, 1.0, self.dtype, fermions=self._fermions, reflected=False)

    def _find_hermitian(self) -> bool:
        return bool((self._order[self._order] == np.arange(self._order.size)).all())

    def _trace(self) -> complex | None:
        return self._traced_over(self._order, 1.0, fermions=self._fermions)

    def transpose(self, *, concrete: bool = True) -> Any:
        """The transposed operator: the inverse permutation."""
        inverse = Permutation(permutation_array=np.argsort(self._order), validate=False)
        return type(self)(self.hilbert, inverse, dtype=self.dtype)

    def conjugate(self, *, concrete: bool = True) -> Any:
        """The operator itself, which is real."""
        return self

    def _op__matmul__(self, other: Any) -> Any:
        other = self._adopt(other)
        if isinstance(other, PermutationOperatorBase) and self.hilbert == other.hilbert:
            dtype = jnp.promote_types(self.dtype, other.dtype)
            return type(self)(self.hilbert, self.permutation @ other.permutation, dtype=dtype)
        return multiply(self, other)

    def _metadata(self) -> tuple[Any, ...]:
        return (self.hilbert, self.permutation, jnp.dtype(self.dtype))

    @classmethod
    def tree_unflatten(cls, metadata: tuple[Any, ...], data: tuple[Any, ...]) -> Any:
        """The operator."""
        del data
        operator = object.__new__(cls)
        operator._hilbert, operator.permutation, operator._dtype = metadata
        return operator

    @classmethod
    def from_netket(cls, operator: Any) -> Any:
        """The operator that equals one of NetKet's, of the same dtype."""
        return cls(operator.hilbert, operator.permutation, dtype=operator.dtype)


@jax.tree_util.register_pytree_node_class
class PermutationOperator(_Permutation, netkets_permutation.PermutationOperator):
    """A permutation of the sites of spins or bosons.

    It takes the place of :class:`netket.operator.permutation.PermutationOperator`: the same constructor, and
    ⟨σ|P|σ'⟩ = 1 for the σ' that has at site i what σ has at the image of i. Where it differs: samples that aren't of
    the Hilbert space are errors, ``is_hermitian`` knows of permutations that are their own inverse, and there are
    ``transpose`` and ``H``.

    Args:
        hilbert: The Hilbert space.
        permutation: A permutation of its sites.
        dtype: The dtype of the matrix elements.

    Raises:
        TypeError: If it is no permutation.
        ValueError: If it is one of more or fewer sites, or of sites with other local states.
    """

    _fermions = False

    def __init__(self, hilbert: Any, permutation: Any, *, dtype: Any = float) -> None:
        super().__init__(hilbert, permutation, dtype=dtype)
        sites = local_states(hilbert)
        kind = np.asarray(sites.kind)
        if kind.size and (kind != kind[self._order]).any():
            site = int(np.flatnonzero(kind != kind[self._order])[0])
            raise ValueError(
                f"the permutation takes site {site} to site {int(self._order[site])}, which has other local states: "
                "only sites that are alike can be exchanged"
            )
        check_sectors(hilbert, self._order)


@jax.tree_util.register_pytree_node_class
class PermutationOperatorFermion(_Permutation, netkets_permutation.PermutationOperatorFermion):
    """A permutation of the orbitals of fermions, with the sign of putting them in order again.

    It takes the place of :class:`netket.operator.permutation.PermutationOperatorFermion`: the same constructor. See
    :class:`PermutationOperator`.

    Args:
        hilbert: A Hilbert space with a fixed number of fermions.
        permutation: A permutation of its orbitals.
        dtype: The dtype of the matrix elements.

    Raises:
        TypeError: If the Hilbert space is another one, or if it is no permutation.
        ValueError: If the permutation is one of more or fewer orbitals, or takes fermions from one spin to another that
            has another number of them.
    """

    _fermions = True

    def __init__(self, hilbert: Any, permutation: Any, dtype: Any = float) -> None:
        if not isinstance(hilbert, SpinOrbitalFermions):
            raise TypeError(
                f"PermutationOperatorFermion acts on fermions, not on {hilbert!r}: take a PermutationOperator, or "
                "nk.hilbert.SpinOrbitalFermions"
            )
        if isinstance(permutation, Permutation) and permutation.permutation_array.size == hilbert.size:
            check_sectors(hilbert, np.asarray(permutation.permutation_array))
        super().__init__(hilbert, permutation, dtype=dtype)


def check_sectors(hilbert: Any, order: np.ndarray) -> None:
    """Checks that a permutation doesn't lead out of a Hilbert space.

    Raises:
        ValueError: If it does: if it takes sites with a conserved number to sites without, or with another one.
    """
    conserved, _ = sectors(hilbert)
    known = {(frozenset(sector.sites), sector.total) for sector in conserved}
    for sector in conserved:
        image = frozenset(int(order[site]) for site in sector.sites)
        if (image, sector.total) not in known:
            raise ValueError(
                f"the permutation leads out of {hilbert!r}: it takes the sites {sector.sites[0]} to "
                f"{sector.sites[-1]}, the sum of whose local states is {sector.value:g}, to sites where it isn't "
                "fixed to that"
            )


def construct_permutation_operator(hilbert_space: Any, permutation: Any) -> Any:
    """The permutation of the sites of spins or bosons, or of the orbitals of fermions.

    Raises:
        TypeError: If the Hilbert space is none of these.
    """
    if isinstance(hilbert_space, SpinOrbitalFermions):
        return PermutationOperatorFermion(hilbert_space, permutation)
    if isinstance(hilbert_space, Qubit | Spin | Fock):
        return PermutationOperator(hilbert_space, permutation)
    raise TypeError(
        f"there is no permutation operator for {hilbert_space!r} by itself: take a PermutationOperator, or "
        "nk.hilbert.Spin, Qubit, Fock or SpinOrbitalFermions"
    )


@jax.tree_util.register_pytree_node_class
class SpinFlipOperator(_Rearranging, SpinFlipBase):
    """The operator that reverses all spins, or exchanges the two spins of fermions.

    It takes the place of NetKet's ``SpinFlipOperator``: the same constructor. Where it differs: samples that aren't of
    the Hilbert space are errors, and ``is_hermitian`` is true.

    Args:
        hilbert: A :class:`netket.hilbert.Spin` space, with total_sz = 0 if it is fixed, or a
            :class:`netket.hilbert.SpinOrbitalFermions` of spin ½ with as many fermions of one spin as of the other.
        dtype: The dtype of the matrix elements.

    Raises:
        TypeError: If the Hilbert space is another one.
        ValueError: If its constraints don't allow it.
    """

    def __init__(self, hilbert: Any, *, dtype: Any = float) -> None:
        DiscreteJaxOperator.__init__(self, hilbert)
        self._dtype = jnp.dtype(dtype)
        if isinstance(hilbert, Spin):
            for sector in sectors(hilbert)[0]:
                change = len(sector.sites) * (hilbert.local_size - 1) - 2 * sector.total
                if change:
                    raise leaving(hilbert, sector, "the local states of all sites", "their opposites", change)
        elif not isinstance(hilbert, SpinOrbitalFermions):
            raise TypeError(
                f"SpinFlipOperator acts on spins or on fermions with spin, not on {hilbert!r}: take nk.hilbert.Spin or "
                "nk.hilbert.SpinOrbitalFermions"
            )
        elif hilbert.n_spin_subsectors != 2 or hilbert.n_fermions_per_spin[0] is None:  # noqa: PLR2004
            raise ValueError(
                f"SpinFlipOperator needs fermions of spin 1/2 with a fixed number of each spin, which {hilbert!r} "
                "hasn't: give it s=1/2 and n_fermions_per_spin"
            )
        else:
            check_sectors(hilbert, self._parts[0])

    @property
    def _parts(self) -> tuple[np.ndarray, float, bool]:
        """The order of the sites, the matrix element, and whether local states are reversed."""
        n_sites = self.hilbert.size
        if isinstance(self.hilbert, SpinOrbitalFermions):
            n_fermions = self.hilbert.n_fermions_per_spin[0]
            return np.roll(np.arange(n_sites), n_sites // 2), -1.0 if n_fermions % 2 else 1.0, False
        return np.arange(n_sites), 1.0, True

    def _compile(self) -> Form:
        order, value, reflected = self._parts
        return rearrangement(self.hilbert, order, value, self.dtype, fermions=False, reflected=reflected)

    def _terms(self) -> TermList | None:
        if isinstance(self.hilbert, SpinOrbitalFermions):
            return None
        identity = TermList.identity(self.hilbert.size)
        return dataclasses.replace(identity, flip=np.bitwise_or.reduce(site_bits(self.hilbert.size), keepdims=True))

    def _find_hermitian(self) -> bool:
        return True

    def _trace(self) -> complex | None:
        order, value, reflected = self._parts
        return self._traced_over(order, value, fermions=False, reflected=reflected)

    def transpose(self, *, concrete: bool = True) -> Any:
        """The operator itself: its matrix is symmetric."""
        return self

    def conjugate(self, *, concrete: bool = True) -> Any:
        """The operator itself, which is real."""
        return self

    def _metadata(self) -> tuple[Any, ...]:
        return (self.hilbert, jnp.dtype(self.dtype))

    @classmethod
    def tree_unflatten(cls, metadata: tuple[Any, ...], data: tuple[Any, ...]) -> Any:
        """The operator."""
        del data
        operator = object.__new__(cls)
        operator._hilbert, operator._dtype = metadata
        return operator

    @classmethod
    def from_netket(cls, operator: Any) -> Any:
        """The operator that equals one of NetKet's, of the same dtype."""
        return cls(operator.hilbert, dtype=operator.dtype)
