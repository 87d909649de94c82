"""Registers the handlers of the compiled half with JAX. Importing this module does it."""

import jax

from ferroket import _lib

for _name, _handler in _lib.ffi_handlers().items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")

TARGETS = frozenset(_lib.ffi_handlers())
"""The names of the registered handlers."""
