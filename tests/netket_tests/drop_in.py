"""A plugin of pytest that runs NetKet's own tests with this package in NetKet's place.

    PYTHONPATH=tests/netket_tests python -m pytest -p drop_in --ferroket=operators NETKET/test/operator
    PYTHONPATH=tests/netket_tests python -m pytest -p drop_in --ferroket=enable NETKET/test/driver

`operators` puts the classes and functions of `fk.operator` in the place of those of `netket.operator`, and `enable`
calls `fk.enable()`. NetKet's folder of tests must not lie beside a `netket` package that isn't the one to be tested.
`make test-netket` takes care of that, and says which tests fail with ours alone.
"""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

DIFFERENCES = Path(__file__).with_name("differences.txt")

_SUBMODULES = ("spin", "boson", "fermion", "permutation")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ferroket", choices=("operators", "enable"), help="what takes NetKet's place in NetKet's tests")


def _approx(expected: Any, rel: Any = None, abs: Any = None, nan_ok: bool = False) -> Any:
    """NetKet's tests give arrays of JAX, which pytest 9 refuses as tolerances and can't compare with."""
    if hasattr(expected, "__array__"):
        expected = np.asarray(expected)[()]
    rel, abs = (None if tolerance is None else float(tolerance) for tolerance in (rel, abs))
    return _PYTESTS_APPROX(expected, rel=rel, abs=abs, nan_ok=nan_ok)


_PYTESTS_APPROX = pytest.approx


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: a mark of NetKet's tests")
    pytest.approx = _approx
    mode = config.getoption("--ferroket")
    if mode == "operators":
        replace_operators()
    elif mode == "enable":
        import ferroket as fk

        fk.enable()


def replace_operators() -> None:
    """Has whoever imports NetKet's operators from now on import ours."""
    import netket as nk

    import ferroket as fk

    for name in _SUBMODULES:
        _replace_submodule(nk.operator, name, getattr(fk.operator, name))
    for module in (nk.operator, nk.experimental.operator):
        for name in fk.operator.__all__:
            for netkets in (name, f"{name}Jax"):
                if netkets in vars(module) and netkets not in _SUBMODULES:
                    setattr(module, netkets, getattr(fk.operator, name))


def _replace_submodule(package: ModuleType, name: str, ours: ModuleType) -> None:
    """Puts a module in the place of one of NetKet's, which stays what it is for those who have it already."""
    netkets = getattr(package, name)
    both = ModuleType(netkets.__name__, netkets.__doc__)
    vars(both).update(vars(netkets))
    vars(both).update({public: vars(ours)[public] for public in vars(netkets) if _is_of(ours, public)})
    setattr(package, name, both)
    sys.modules[netkets.__name__] = both


def _is_of(ours: ModuleType, name: str) -> bool:
    """Whether a public name is one of this package's own."""
    value = vars(ours).get(name)
    return not name.startswith("_") and getattr(value, "__module__", "").startswith("ferroket.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expects the listed tests to fail; one that passes is a failure, so that the list has no more than it needs."""
    mode = config.getoption("--ferroket")
    if mode is None:
        return
    known = [(pattern, reason) for of, pattern, reason in differences() if of == mode]
    for item in items:
        for pattern, reason in known:
            if pattern.search(item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def differences() -> list[tuple[str, re.Pattern[str], str]]:
    """What is listed: `operators` or `enable`, the end of a test's name, in which * stands for anything, the reason."""
    found = []
    for line in DIFFERENCES.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        where, reason = line.split(" = ", 1)
        mode, test = where.split(maxsplit=1)
        pattern = ".*".join(map(re.escape, test.split("*")))
        found.append((mode, re.compile(f"(^|/){pattern}$"), reason))
    return found


def pytest_report_header(config: pytest.Config) -> Any:
    import netket as nk

    return f"netket {nk.__version__} of {Path(nk.__file__).parent}; in its place: {config.getoption('--ferroket')}"
