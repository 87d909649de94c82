"""What all families of operators share: sums, products, terms, matrices and conversions.

It imports no family. Families tell :mod:`ferroket.operator.algebra.registry` what they are made from.
"""
