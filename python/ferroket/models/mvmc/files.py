"""The definition files of mVMC: lines of numbers below a header, and the list of these files."""

import math
from dataclasses import dataclass
from pathlib import Path

_HEADER = 5
"""How many lines a header has: the second one has the number of entries, the third one whether they are complex."""

IGNORED = {"initial", "onebodyg", "twobodyg", "twobodygex"}
"""Keywords of what a state isn't made of: what is measured, and where a mean-field calculation starts."""

HAMILTONIAN = {"trans", "coulombintra", "coulombinter", "hund", "pairhop", "exchange", "interall"}

PARAMETERS = {
    "ingutzwiller",
    "injastrow",
    "indh2",
    "indh4",
    "inorbital",
    "inorbitalantiparallel",
    "inorbitalparallel",
    "inorbitalgeneral",
}

WAVE_FUNCTION = {
    "modpara",
    "locspin",
    "gutzwiller",
    "jastrow",
    "dh2",
    "dh4",
    "orbital",
    "orbitalantiparallel",
    "orbitalparallel",
    "orbitalgeneral",
    "transsym",
}

_LAYERS = [
    f"{kind}rbm_{of}" for kind in ("charge", "spin", "general") for of in ("hiddenlayer", "physlayer", "physhidden")
]

UNSUPPORTED = {
    **{f"{prefix}{name}": "restricted Boltzmann machines" for name in _LAYERS for prefix in ("", "in")},
    "bf": "backflow",
    "bfrange": "backflow",
    "opttrans": "optimised weights of a projection",
    "inopttrans": "optimised weights of a projection",
}


@dataclass(frozen=True)
class Line:
    """The words of a line, and where it is."""

    path: Path
    number: int
    words: tuple[str, ...]

    def wrong(self, rule: str) -> ValueError:
        """An error that names the line."""
        return ValueError(f"{self.path}, line {self.number}: {rule}, but got {' '.join(self.words)!r}")

    def integers(self, count: int, what: str) -> tuple[int, ...]:
        """The first so many words as integers.

        Raises:
            ValueError: There are fewer, or they aren't integers.
        """
        try:
            found = tuple(int(word) for word in self.words[:count])
        except ValueError:
            found = ()
        if len(found) < count:
            raise self.wrong(f"a line has {what}, {count} integers")
        return found

    def reals(self, start: int, count: int, what: str) -> tuple[float, ...]:
        """So many words from one on as finite numbers.

        Raises:
            ValueError: There are fewer, or they aren't finite numbers.
        """
        try:
            found = tuple(float(word) for word in self.words[start : start + count])
        except ValueError:
            found = ()
        if len(found) < count or not all(map(math.isfinite, found)):
            raise self.wrong(f"a line has {what}, finite numbers from word {start + 1} on")
        return found

    def sites(self, places: tuple[int, ...], n_sites: int, what: str) -> tuple[int, ...]:
        """The words at some places as sites.

        Raises:
            ValueError: They aren't integers below n_sites.
        """
        found = self.integers(max(places) + 1, what)
        if any(not 0 <= found[place] < n_sites for place in places):
            raise self.wrong(f"sites are numbered from 0 to {n_sites - 1}")
        return tuple(found[place] for place in places)


@dataclass(frozen=True)
class Definition:
    """A definition file: what its header says, and the lines below."""

    path: Path
    count: int
    """The number that the second line of the header has."""
    is_complex: bool
    lines: tuple[Line, ...]

    def take(self, *counts: int) -> list[tuple[Line, ...]]:
        """Its lines in groups of these sizes.

        Raises:
            ValueError: There is another number of lines.
        """
        if len(self.lines) != sum(counts):
            raise ValueError(
                f"{self.path}: its header and the number of sites say that {sum(counts)} lines follow, "
                f"{' + '.join(map(str, counts))}, but there are {len(self.lines)}"
            )
        remaining = iter(self.lines)
        return [tuple(next(remaining) for _ in range(count)) for count in counts]


def read_lines(path: Path) -> list[Line]:
    """The lines of a file, blank ones too.

    Raises:
        FileNotFoundError: There is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file; names in a list of files are relative to its folder")
    text = path.read_text(encoding="utf-8", errors="replace")
    return [Line(path, number, tuple(line.split())) for number, line in enumerate(text.splitlines(), start=1)]


def read_definition(path: Path) -> Definition:
    """A file with a header of five lines.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The header has no number of entries.
    """
    lines = read_lines(path)
    if len(lines) < _HEADER:
        raise ValueError(f"{path}: a header has {_HEADER} lines, and the second one a name and a number of entries")
    second, third = lines[1], lines[2]
    try:
        count = int(second.words[1])
    except (IndexError, ValueError):
        raise second.wrong("the second line of a header has a name and a number of entries") from None
    is_complex = len(third.words) > 1 and third.words[0].lower() == "complextype" and third.words[1] != "0"
    return Definition(path, count, is_complex, tuple(line for line in lines[_HEADER:] if line.words))


def read_namelist(path: Path) -> dict[str, Path]:
    """The files that a list of files names, by their keywords in lower case.

    Raises:
        FileNotFoundError: There is no such list.
        ValueError: A line has no keyword and file, or a keyword that is unknown or there twice.
        NotImplementedError: A keyword is that of what Ferroket doesn't have.
    """
    found: dict[str, Path] = {}
    for line in read_lines(path):
        if not line.words or line.words[0].startswith("#"):
            continue
        if len(line.words) < 2:  # noqa: PLR2004
            raise line.wrong("a line has a keyword and the name of a file")
        keyword = line.words[0].lower()
        if keyword in UNSUPPORTED:
            raise NotImplementedError(
                f"{path}, line {line.number}: {line.words[0]} is an entry of {UNSUPPORTED[keyword]}, which aren't "
                "supported: only pair products with Gutzwiller, Jastrow and doublon-holon factors are"
            )
        if keyword not in WAVE_FUNCTION | HAMILTONIAN | PARAMETERS | IGNORED:
            raise line.wrong("the first word is a keyword of mVMC's")
        if keyword in found:
            raise line.wrong("each keyword is there once")
        found[keyword] = path.parent / line.words[1]
    return found


def read_keywords(path: Path) -> dict[str, Line]:
    """The lines of ``modpara.def`` by their first word in lower case.

    Raises:
        FileNotFoundError: There is no such file.
    """
    lines = [line for line in read_lines(path) if len(line.words) > 1 and line.words[0][0] not in "-=#"]
    return {line.words[0].lower(): line for line in lines}
