"""Operators on sites with any number of local states as sums of local matrices."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import numpy as np

from ferroket.ffi import Attribute, Family, MatrixArguments
from ferroket.ffi.references import matrices as references
from ferroket.ffi.references import sites as site_references
from ferroket.operator.compiled.form import Form, coefficients
from ferroket.operator.compiled.local_states import LocalStates


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("sites", "first_site", "acting_on", "table", "first_row", "first_entry", "columns", "values"),
    meta_fields=("diagonal", "support", "max_conn_size"),
)
@dataclass(frozen=True, eq=False)
class Matrices(Form):
    """A sum of terms, each a matrix that acts on a few sites.

    The local indices of a sample at the sites of a term, most significant first, are the digits of a row of its matrix.
    The diagonal entries of all terms are one connected element, each other entry of these rows is one by itself, in the
    order of the terms and of the columns. With T terms, M matrices of R rows and V entries altogether:

    Args:
        sites: The local states of the sites.
        first_site: Term t acts on ``acting_on[first_site[t]:first_site[t + 1]]``, int32 ``(T + 1,)``.
        acting_on: The sites of the terms, most significant first, int32.
        table: Which matrix each term has, int32 ``(T,)``.
        first_row: The rows of matrix m start at ``first_row[m]``, int32 ``(M + 1,)``.
        first_entry: The entries of row r are ``first_entry[r]:first_entry[r + 1]``, int32 ``(R + 1,)``.
        columns: The column of each entry in its matrix, int32 ``(V,)``. That of the diagonal comes first in its row,
            the others ascend.
        values: The coefficients, the entries' values ⟨row|O|column⟩, ``(V,)``.
        diagonal: Whether the first connected element is the diagonal, for all samples. If not, no entry may be on it.
        support: The largest number of sites of a term.
        max_conn_size: K, the largest number of elements that a sample has.

    Use :meth:`from_arrays`, which works out what follows from the arrays.
    """

    family: ClassVar[Family] = Family(
        target="ferroket_matrices",
        elements=references.elements,
        configurations=references.configurations,
        arguments=MatrixArguments,
        coefficients=("values",),
        filler=site_references.first_local_states,
    )

    sites: LocalStates
    first_site: Any
    acting_on: Any
    table: Any
    first_row: Any
    first_entry: Any
    columns: Any
    values: Any
    diagonal: bool
    support: int
    max_conn_size: int

    @property
    def tables(self) -> MatrixArguments:
        """The arrays in the order in which the kernels take them."""
        return MatrixArguments(
            kind=self.sites.kind,
            first_site=self.first_site,
            sites=self.acting_on,
            table=self.table,
            first_row=self.first_row,
            first_entry=self.first_entry,
            columns=self.columns,
            values=self.values,
        )

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The static numbers that the kernels take."""
        return {**super().attributes, "support": self.support}

    @classmethod
    def from_arrays(
        cls,
        sites: LocalStates,
        first_site: np.ndarray,
        acting_on: np.ndarray,
        table: np.ndarray,
        first_row: np.ndarray,
        first_entry: np.ndarray,
        columns: np.ndarray,
        values: Any,
        *,
        diagonal: bool | None = None,
        max_conn_size: int | None = None,
    ) -> Self:
        """From arrays in this form.

        Args:
            sites: The local states of the sites.
            first_site: As all arrays, see the class.
            acting_on: The sites of the terms.
            table: Which matrix each term has.
            first_row: Where the rows of the matrices start.
            first_entry: Where the entries of the rows start.
            columns: The columns of the entries.
            values: The coefficients; they may be traced.
            diagonal: Whether the first connected element is the diagonal; by default, if there are entries on it or
                none anywhere.
            max_conn_size: K; by default what the terms have at most, each by itself.
        """
        first_site, table, first_row, first_entry, columns = (
            np.asarray(array, np.int64) for array in (first_site, table, first_row, first_entry, columns)
        )
        entries = np.diff(first_entry)
        row_in_matrix = np.arange(entries.size) - np.repeat(first_row[:-1], np.diff(first_row))
        filled = entries > 0
        on_diagonal = np.zeros(entries.size, np.int64)
        on_diagonal[filled] = columns[first_entry[:-1][filled]] == row_in_matrix[filled]
        if diagonal is None:
            diagonal = bool(on_diagonal.any()) or not columns.size
        if max_conn_size is None:
            others = entries - on_diagonal
            most = np.maximum.reduceat(others, first_row[:-1]) if others.size else others
            max_conn_size = int(most[table].sum()) + diagonal
        return cls(
            sites=sites,
            first_site=np.asarray(first_site, np.int32),
            acting_on=np.asarray(acting_on, np.int32),
            table=np.asarray(table, np.int32),
            first_row=np.asarray(first_row, np.int32),
            first_entry=np.asarray(first_entry, np.int32),
            columns=np.asarray(columns, np.int32),
            values=coefficients(values),
            diagonal=diagonal,
            support=int(np.diff(first_site).max(initial=0)),
            max_conn_size=max_conn_size,
        )


def offsets(lengths: Any) -> np.ndarray:
    """Where the runs of these lengths start, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])
