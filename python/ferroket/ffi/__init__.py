"""Where Rust meets JAX: primitives with their sharding, batching, derivative and platform rules.

This is the only package that knows :mod:`jax.ffi`. An operator family describes itself once, as a
:class:`Family`, and gets all the rules from the one primitive behind :func:`connected_elements`.
"""

from ferroket.ffi.connected import Family, connected_elements, connected_elements_p

__all__ = ["Family", "connected_elements", "connected_elements_p"]
