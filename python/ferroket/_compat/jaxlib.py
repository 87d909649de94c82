"""Versions of jaxlib that compute wrong numbers on CPUs, and the flag of XLA's with which they don't.

From jaxlib 0.10.2 on XLA hands reductions to YNNPACK, together with what is reduced. Some come out wrong, by far more
than rounding and without a word:

- sums over small products, ``vmap(lambda row: sum((M @ row) ** 2))``, in 0.10.2 (jax-ml/jax issue 39103);
- sums of broadcast arrays, with another result in each call, in 0.10.2 to 0.11.2 (google/XNNPACK pull request 11243);
- reductions of products with a broadcast matrix, ``sum((E @ full_like(E, c)) * E)``, in 0.10.2 to 0.12.0.1;
- windows with a base dilation, in 0.10.2 to 0.12.0.1 (openxla/xla issue 48714).

The flag says what YNNPACK is given. Matrix products alone, which was the default until 0.10.1, are right in all of
these versions, and faster than without YNNPACK. An unknown flag ends the process, so versions before and after are
left alone. XLA reads its flags once, when JAX's backend starts.

Importing this module doesn't import JAX.
"""

import logging
import os
import re
import warnings
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from ferroket._compat.jax import is_backend_started

FLAG = "--xla_cpu_experimental_ynn_fusion_type"
# The first and the last version that are known to compute wrong numbers without the flag.
_FIRST_WRONG = (0, 10, 2)
_LAST_WRONG = (0, 12, 0, 1)
_PRODUCTS_ALONE = f"{FLAG}=individual_dot"


def is_wrong(version: str) -> bool:
    """Whether this version of jaxlib is known to compute wrong numbers, unless YNNPACK computes no reductions."""
    return _FIRST_WRONG <= Version(version).release <= _LAST_WRONG


def correct_reductions() -> None:
    """Sets XLA's flag in ``XLA_FLAGS`` where jaxlib needs it, unless the user has set it. Child processes inherit it.

    Warns:
        RuntimeWarning: JAX's backend has started before, and computes wrong numbers.
    """
    version = _version()
    if version is None or not is_wrong(version) or _setting() is not None:
        return
    if is_backend_started():
        warnings.warn(
            f"jaxlib {version} computes some sums wrong on CPUs, and JAX has started before `import ferroket`, which "
            "would have prevented that. Move `import ferroket` above netket and above what uses jax, or set the "
            f"variable XLA_FLAGS={_PRODUCTS_ALONE} before Python starts",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    os.environ["XLA_FLAGS"] = f"{_flags()} {_PRODUCTS_ALONE}".strip()
    logging.getLogger("ferroket").info(
        "jaxlib %s computes some sums wrong on CPUs: %s in XLA_FLAGS prevents it", version, _PRODUCTS_ALONE
    )


def setting_of_reductions() -> str:
    """The flag's value in ``XLA_FLAGS``, as all ranks need the same."""
    setting = _setting()
    return "unset" if setting is None else repr(setting)


def explain_reductions() -> str | None:
    """What is done about wrong reductions, in one line; None where jaxlib isn't known to be wrong."""
    version = _version()
    if version is None or not is_wrong(version):
        return None
    if _setting() is None:
        return f"some are wrong: jaxlib {version}, and XLA's flag came too late"
    if f"{FLAG}={_setting()}" == _PRODUCTS_ALONE:
        return f"not by YNNPACK, since jaxlib {version} computes some of them wrong ({_PRODUCTS_ALONE})"
    return f"some may be wrong: jaxlib {version}, with {FLAG}={_setting()} set by the user"


def mend_of_reductions(version: str) -> str:
    """What a user can do about wrong reductions of a version of jaxlib."""
    if is_wrong(version):
        return f"export XLA_FLAGS={_PRODUCTS_ALONE}, or install another version of jaxlib"
    return "install another version of jaxlib, and report this page"


def _version() -> str | None:
    try:
        return metadata.version("jaxlib")
    except metadata.PackageNotFoundError:
        return None


def _setting() -> str | None:
    """The flag's value, the last where there are several, as XLA takes it."""
    found = re.findall(rf"{FLAG}(?:=(\S*))?(?!\S)", _flags())
    return found[-1] if found else None


def _flags() -> str:
    """XLA's flags: the variable's text, or that of the file that it names."""
    text = os.environ.get("XLA_FLAGS", "").strip()
    if not text or text.startswith("-"):
        return text
    try:
        return " ".join(Path(text).read_text().split())
    except OSError:  # XLA ignores it, too
        return ""
