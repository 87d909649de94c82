"""Private names of JAX and NetKet: those that we use are still there, and only ``ferroket/_compat`` uses them.

``_compat/jax.py`` and ``_compat/netket.py`` declare them in ``PRIVATE``, or import them. What our classes inherit from
those of NetKet is declared too, as ``inherited``, since it is used in the modules of these classes.
"""

import ast
import importlib
import inspect
import pkgutil
import sys
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from packaging.version import Version

import ferroket
from ferroket._compat import jax as compat
from ferroket._compat.names import Private

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
PACKAGE = Path(ferroket.__file__).parent
COMPAT = PACKAGE / "_compat"
SOURCES = sorted(PACKAGE.rglob("*.py"))
OTHERS = ("jax", "jaxlib", "netket")
HAS_NETKET = (COMPAT / "netket.py").exists()
NO_NETKET = pytest.mark.skipif(not HAS_NETKET, reason="there is no ferroket/_compat/netket.py")

# Not private, in spite of their underscore.
PUBLIC = {"_replace", "_asdict", "_fields", "_make"}


def is_private(name: str) -> bool:
    """Whether a name, or a part of a dotted one, begins with one underscore."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def title(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


# -- (a) what is declared is there ---------------------------------------------------------------------------


def declared() -> list[Private]:
    modules = [importlib.import_module(f"ferroket._compat.{file.stem}") for file in COMPAT.glob("[a-z]*.py")]
    return [name for module in modules for name in getattr(module, "PRIVATE", ())]


def imported() -> Iterator[str]:
    """What the files of _compat import from private modules, or by private names, written as those declared are.

    What only some versions have is imported in a ``try``; the newest that is tested has it.
    """
    for path in COMPAT.glob("[a-z]*.py"):
        tried = [node for outer in ast.walk(parsed(path)) if isinstance(outer, ast.Try) for node in ast.walk(outer)]
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            package = node.module.split(".")[0]
            if package not in OTHERS or (node in tried and not is_newest(package)):
                continue
            for alias in node.names:
                if is_private(f"{node.module}.{alias.name}"):
                    yield f"{node.module}:{alias.name}"


def is_newest(package: str) -> bool:
    """Whether a package has at least the newest version with which the tests run."""
    tested = tomllib.loads(PROJECT.read_text())["tool"]["ferroket"]["tested"]
    return Version(version(package)) >= max(map(Version, tested["jax" if package == "jaxlib" else package]))


@cache
def lines_of_names() -> dict[str, list[str]]:
    """Where our source has each name: as one of its own, as an attribute, imported, or as a method."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            names = {getattr(node, "attr", None), getattr(node, "id", None)}
            if isinstance(node, ast.alias | ast.FunctionDef):
                names.add(node.name)
            for name in filter(None, names):
                found[name].append(f"ferroket/{title(path)}:{node.lineno}")  # type: ignore[attr-defined]
    return found


def places(name: str) -> str:
    """Where our source has the last part of a name."""
    return ", ".join(lines_of_names().get(name.replace(":", ".").rsplit(".", 1)[1], []))


def find(name: str) -> Any:
    """The object behind ``module:object.attribute``; None for an attribute that only instances have.

    Raises:
        ImportError, AttributeError: there is none.
    """
    module, _, path = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError:  # not a module but a name in one
        module, _, first = module.rpartition(".")
        found = getattr(importlib.import_module(module), first)
    parts = path.split(".")
    for part in parts:
        owner = found
        found = getattr(owner, part, None)
        if found is None and not hasattr(owner, part):
            if part == parts[-1] and part in own_attributes(owner):
                return None
            raise AttributeError(part)
    return found


@cache
def own_attributes(owner: Any) -> set[str]:
    """The attributes that a class annotates, or that its methods give to ``self``."""
    kinds = inspect.getmro(owner if inspect.isclass(owner) else type(owner))
    return set().union(*(attributes_of_one(kind) for kind in kinds if kind is not object))


@cache
def attributes_of_one(kind: type) -> frozenset[str]:
    found = {*vars(kind), *getattr(kind, "__annotations__", {})}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # compiled
        return frozenset(found)
    found |= {node.attr for node in ast.walk(tree) if is_on_self(node) and isinstance(node.ctx, ast.Store)}
    # Frozen dataclasses have their attributes set by name.
    found |= {
        node.args[1].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "__setattr__"
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    }
    return frozenset(found)


def is_on_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def missing_parameters(function: Any, wanted: tuple[str, ...]) -> list[str]:
    """What keeps us from calling a function, or from taking its place, with these parameters alone."""
    if not inspect.isfunction(function):  # compiled: the docstring has them
        return [name for name in wanted if f"{name}: " not in function.__doc__]
    found = inspect.signature(function).parameters
    needed = [
        name
        for name, parameter in found.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return [name for name in wanted if name not in found] + [name for name in needed if name not in wanted]


NAMES = dict.fromkeys(imported(), ()) | {private.name: private.parameters for private in declared()}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_private_name_is_still_there(name: str) -> None:
    package = name.split(".", maxsplit=1)[0]
    where = f"{package} {version(package)} and used in {places(name)}"
    try:
        found = find(name)
    except (ImportError, AttributeError):
        pytest.fail(f"{name} is gone from {where}")
    if NAMES[name]:
        wrong = missing_parameters(found, NAMES[name])
        assert not wrong, f"{name} has other parameters ({', '.join(wrong)}) in {where}"


@pytest.mark.parametrize("private", declared(), ids=lambda private: private.name)
def test_what_is_declared_is_used(private: Private) -> None:
    assert private.inherited or places(private.name)  # what is inherited may be read by NetKet alone
    assert private.why


def test_the_check_finds_what_is_gone() -> None:
    for name in ("jax._src.gone:x", "jax._src.distributed:gone", "jax._src.sharding:Sharding._gone"):
        with pytest.raises((ImportError, AttributeError)):
            find(name)
    assert find("jax._src.distributed:State.client") is None  # a class variable
    assert missing_parameters(lambda a, b: None, ("a", "c")) == ["c", "b"]


def test_programs_are_seen_before_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compiled program tells, for which JAX has no names that stay from version to version."""
    executable = find("jax._src.interpreters.pxla:ExecuteReplicated")
    monkeypatch.setattr(executable, "__call__", executable.__call__)
    seen: list[tuple[Any, str]] = []
    compat.before_each_run(
        lambda program: seen.append((compat.devices_of_program(program), compat.hlo_of_program(program)))
    )
    mesh = Mesh(np.array(jax.devices()[:1]), ("S",))  # as the one that NetKet sets, if it is imported
    x = jax.device_put(np.arange(3.0), NamedSharding(mesh, PartitionSpec("S")))
    seen.clear()
    assert float(jax.jit(lambda x: (x * 7).sum())(x)) == 21
    (devices, hlo), *_ = seen
    assert tuple(devices) == tuple(mesh.devices.flat)
    assert hlo.startswith("HloModule")
    assert "multiply" in hlo


# -- (b) nothing else uses them ------------------------------------------------------------------------------


class Finding(NamedTuple):
    line: int
    package: str
    text: str


def findings(path: Path) -> Iterator[Finding]:
    """The private names of other packages in a file, and what it replaces in them."""
    tree = parsed(path)
    modules = imports_of(tree)
    for node in ast.walk(tree):
        for name in imported_names(node) if isinstance(node, ast.Import | ast.ImportFrom) else ():
            package = name.split(".")[0]
            if package in OTHERS and (is_private(name) or package == "jaxlib"):
                yield Finding(node.lineno, package, f"imports {name}")
        if isinstance(node, ast.Attribute):
            yield from attribute_findings(node, modules)
        if isinstance(node, ast.Assign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                chain = chain_of(target, modules)
                if chain and isinstance(target, ast.Attribute):
                    yield Finding(node.lineno, chain.split(".")[0], f"replaces {chain}")
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr":
            chain = chain_of(node.args[0], modules)
            if chain:
                yield Finding(node.lineno, chain.split(".")[0], f"replaces a name of {chain}")


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def imports_of(tree: ast.Module) -> dict[str, str]:
    """The local names of what is imported from other packages, and the full ones."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.asname or alias.name.split(".")[0]): alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(alias.asname or alias.name): f"{node.module}.{alias.name}" for alias in node.names}
    return {local: name for local, name in found.items() if name.split(".")[0] in OTHERS}


def chain_of(node: ast.AST, modules: dict[str, str]) -> str:
    """``nk.sampler.rules`` in full, if it begins with something that is imported from another package."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in modules:
        return ""
    return ".".join([modules[node.id], *reversed(parts)])


def attribute_findings(node: ast.Attribute, modules: dict[str, str]) -> Iterator[Finding]:
    if not is_private(node.attr) or node.attr in PUBLIC:
        return
    chain = chain_of(node, modules)
    if chain:
        yield Finding(node.lineno, chain.split(".")[0], f"reads {chain}")
    elif not is_own(node) and node.attr not in OURS | INHERITED:
        package = "jax" if node.attr in JAXS else "netket"
        yield Finding(node.lineno, package, f"reads {ast.unparse(node)}")


def is_own(node: ast.Attribute) -> bool:
    """Whether an attribute is that of the object itself, of its base class, or of a module of Python's library."""
    value = node.value
    if isinstance(value, ast.Call):
        return getattr(value.func, "id", "") == "super"
    name = getattr(value, "id", "")
    return name in ("self", "cls") or name in sys.stdlib_module_names


@cache
def ours() -> set[str]:
    """The private names that our source defines: of modules, functions, classes and attributes."""
    found = {path.stem for path in SOURCES} | {"_lib"}
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif is_on_self(node) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return found


OURS = ours()
INHERITED = {private.name.rsplit(".", 1)[1] for private in declared() if private.inherited}
JAXS = {name.rsplit(".", 1)[1] for name in NAMES if name.startswith("jax")}


@pytest.mark.parametrize("path", [path for path in SOURCES if COMPAT not in path.parents], ids=title)
def test_only_compat_uses_private_names(path: Path) -> None:
    found = [finding for finding in findings(path) if HAS_NETKET or finding.package != "netket"]
    lines = [f"ferroket/{title(path)}:{line} {text}" for line, _, text in found]
    assert not found, "only ferroket/_compat may use private names of JAX and NetKet:\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from jax._src import core", ["imports jax._src.core"]),
        ("import jaxlib", ["imports jaxlib"]),
        ("from netket.operator._sum.base import SumOperator", ["imports netket.operator._sum.base.SumOperator"]),
        ("import netket as nk\nnk.graph._x", ["reads netket.graph._x"]),
        ("from netket.vqs import MCState\nMCState._x", ["reads netket.vqs.MCState._x"]),
        ("state._unheard_of", ["reads state._unheard_of"]),
        ("import jax\njax.jit = 3", ["replaces jax.jit"]),
        ("import netket as nk\nsetattr(nk.vqs, name, 3)", ["replaces a name of netket.vqs"]),
        ("from netket.operator import spin as _netkets\n_netkets.sigmax", []),
        ("self._x, super()._x, os._exit, pair._replace(a=1)", []),
        ("from jax.interpreters import batching\nbatching.primitive_batchers[p] = f", []),
    ],
)
def test_the_check_of_the_source(source: str, expected: list[str], tmp_path: Path) -> None:
    file = tmp_path / "source.py"
    file.write_text(source)
    assert [text for _, _, text in findings(file)] == expected


# -- what our classes inherit --------------------------------------------------------------------------------


def our_classes() -> Iterator[type]:
    for module in pkgutil.walk_packages([str(PACKAGE)], "ferroket."):
        if "workers" in module.name or module.name.endswith(("__main__", "_lib")):
            continue  # programs, and what is compiled
        for kind in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(kind) and kind.__module__ == module.name:
                yield kind


def shared(kind: type) -> dict[str, type]:
    """The private names that a class of ours uses or defines, and a class of NetKet has from which it inherits."""
    if kind.__module__.split(".")[0] != "ferroket":
        return {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except OSError:  # made by a function
        return {}
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    bases = [base for base in inspect.getmro(kind) if base.__module__.split(".")[0] in OTHERS]
    return {name: base for base in reversed(bases) for name in filter(is_private, names & attributes_of_one(base))}


@NO_NETKET
def test_what_our_classes_inherit_is_declared() -> None:
    found = {
        name: f'    Private("{base.__module__}:{base.__qualname__}.{name}", "...", inherited=True),  # {kind.__name__}'
        for kind in our_classes()
        for name, base in shared(kind).items()
        if name not in INHERITED
    }
    assert not found, "to be declared in ferroket/_compat/netket.py:\n" + "\n".join(sorted(found.values()))
