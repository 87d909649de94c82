"""What restricts a Hilbert space, and how operators respect it.

:mod:`~ferroket.operator.constraints.hilbert` reads the constraints of a space: conserved charges, limits on the
occupation of sites, and constraints of a user's own. Operators respect them as sums of terms and of local matrices
(:mod:`~ferroket.operator.constraints.projection`), or as compiled forms
(:mod:`~ferroket.operator.constraints.projected_form`).
"""
