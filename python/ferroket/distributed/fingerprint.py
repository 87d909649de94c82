"""A number for a program in MLIR, by which ranks find out whether they run the same one.

Each operation is hashed over the hashes of its operands (a Merkle tree of the dataflow), so that names of values and
the order of independent operations don't matter, and everything else does. What legitimately differs from rank to rank
in the same program is left out:

- the values of constants, of which the type remains. The pairs of a permutation, groups of replicas and the like are
  attributes of other operations, and count;
- what is an address of the process: whole numbers of 64 bits among the attributes of a foreign call, and a number as
  the text of its configuration;
- names of functions, arguments and results, such as a Python function's with the rank in it.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_SYMBOL = re.compile(r'@(?:"((?:[^"\\]|\\.)*)"|([\w.$-]+))')
_NAMES = ("sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs")
# What JAX calls results, and locations.
_OF_ARGUMENTS = re.compile(
    r'(?:jax\.result_info|jax\.arg_info|mhlo\.layout_mode)\s*=\s*"(?:[^"\\]|\\.)*",?|\bloc\([^)]*\)'
)
_ADDRESS = re.compile(r"\b-?\d+ : u?i64\b")


# What communicates in the part of a program that is written for each device.
_COLLECTIVES = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute", "collective_broadcast"),
        *("send", "recv"),
    )
)
# Which of their regions run, or how often, depends on values.
_BRANCHING = ("stablehlo.case", "stablehlo.if", "stablehlo.while")


class Fingerprint(NamedTuple):
    """What ranks compare of a program."""

    number: int
    """Of 64 bits, the same on all ranks that compile the same program."""
    places: list[tuple[Any, int]]
    """The first blocks of branches and loops in which devices communicate, of what is written for each device, with a
    number of each. (Elsewhere all devices take the same branch, by values that they share.)"""


def fingerprint(module: Any) -> Fingerprint:
    """The fingerprint of a module with a function ``main``."""
    found = _Hashes(module)
    return Fingerprint(_number(found.of_function("main")), found.places)


def _number(found: bytes) -> int:
    return int.from_bytes(found[:8], "little")


class _Hashes:
    """The hashes of a module's functions."""

    def __init__(self, module: Any) -> None:
        self.places: list[tuple[Any, int]] = []
        # Functions in which devices communicate, and whether what is looked at is written for each device.
        self._communicating: set[str] = set()
        self._is_manual = False
        operations = list(module.body.operations)
        self._functions = {_name_of(each): each for each in operations if each.operation.name == "func.func"}
        self._others = {_name_of(each): each for each in operations if each.operation.name != "func.func"}
        self._found: dict[str, bytes] = {}

    def of_function(self, name: str) -> bytes:
        """The hash of a function, with those that it calls."""
        if name not in self._found:
            self._found[name] = b"a function that calls itself"
            function = self._functions[name].operation
            attributes = [
                _OF_ARGUMENTS.sub("", self._text(function.attributes[key]))
                for key in ("arg_attrs", "res_attrs")
                if key in function.attributes
            ]
            body, communicates = self._of_region(function.regions[0], {}, 0)
            if communicates:
                self._communicating.add(name)
            self._found[name] = _hash("function", *attributes, body)
        return self._found[name]

    def _of_region(self, region: Any, outside: dict[Any, bytes], depth: int) -> tuple[bytes, bool]:
        """The hash of a region, whose operations may use what is around it, and if devices communicate in it."""
        blocks, communicates = [], False
        values = dict(outside)
        for place, block in enumerate(region.blocks):
            arguments = [str(argument.type) for argument in block.arguments]
            for index, argument in enumerate(block.arguments):
                values[argument] = _hash("argument", str(depth), str(place), str(index), arguments[index])
            found = [self._of_operation(each.operation, values, depth) for each in block.operations]
            communicates |= any(does for _, does in found)
            hashes = [each for each, _ in found]
            # The last operation says what is returned; those whose results nobody uses count as well, in any order.
            blocks.append(_hash("block", *arguments, hashes[-1] if hashes else b"", *sorted(hashes)))
        return _hash("region", *blocks), communicates

    def _of_operation(self, operation: Any, values: dict[Any, bytes], depth: int) -> tuple[bytes, bool]:
        """The hash of an operation, and if devices communicate in it."""
        name = operation.name
        was_manual, self._is_manual = self._is_manual, self._is_manual or name == "sdy.manual_computation"
        regions = [self._of_region(region, values, depth + 1) for region in operation.regions]
        attributes = self._attributes(name, operation.attributes)
        if self._is_manual and name in _BRANCHING:
            for region, (number, does) in zip(operation.regions, regions, strict=True):
                if does:
                    self.places.append((region.blocks[0], _number(number)))
        self._is_manual = was_manual
        own = _hash(
            name,
            *attributes,
            "operands",
            *(values[operand] for operand in operation.operands),
            "results",
            *(str(result.type) for result in operation.results),
            "regions",
            *(number for number, _ in regions),
        )
        for index, result in enumerate(operation.results):
            values[result] = _hash("result", own, str(index))
        called = str(operation.attributes["callee"]).lstrip("@").strip('"') if name == "func.call" else ""
        return own, name in _COLLECTIVES or called in self._communicating or any(does for _, does in regions)

    def _attributes(self, operation: str, attributes: Any) -> list[str]:
        is_foreign = operation.endswith("custom_call")
        found = []
        for index in range(len(attributes)):
            named = attributes[index]
            key = named.name
            if operation == "stablehlo.constant" and key == "value":
                continue  # the type is that of the result
            text = self._text(named.attr)
            if is_foreign:
                text = '""' if key == "backend_config" and text.strip('"').isdigit() else _ADDRESS.sub("i64", text)
            found.append(f"{key} = {text}")
        return sorted(found)

    def _text(self, attribute: Any) -> str:
        """An attribute, with the hash of what it names in the place of the name."""
        return _SYMBOL.sub(lambda symbol: self._of_symbol(symbol[1] or symbol[2]), str(attribute))

    def _of_symbol(self, name: str) -> str:
        if name in self._functions:
            return f"@{self.of_function(name).hex()}"
        if name in self._others:
            operation = self._others[name].operation
            attributes = [attribute for attribute in _attributes_of(operation) if attribute[0] not in _NAMES]
            return f"@{_hash(operation.name, *(f'{key} = {value}' for key, value in sorted(attributes))).hex()}"
        return f"@{name}"


def _attributes_of(operation: Any) -> Sequence[tuple[str, str]]:
    return [
        (named.name, str(named.attr))
        for named in map(operation.attributes.__getitem__, range(len(operation.attributes)))
    ]


def _name_of(operation: Any) -> str:
    attributes = operation.operation.attributes
    return str(attributes["sym_name"]).strip('"') if "sym_name" in attributes else ""


def _hash(*parts: str | bytes) -> bytes:
    """A hash of parts, of which none can be taken for two."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.digest()
