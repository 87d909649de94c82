"""Prints which part of ci/schedule.txt is run at this commit: its number, and why.

Of three commits, as `git rev-list --count HEAD` counts them, two have the part for what has changed: that with the most
changed lines under its paths, and one after the other where several have as many. The third has the next part in turn,
so that each is run, whatever changes. The changes are those of the commits since CI_BASE, if it names a commit, and
otherwise of the last 25: a clone has the history, and doesn't know which commit has passed.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COMMITS = 25
SCHEDULE = Path(__file__).with_name("schedule.txt")


@dataclass(frozen=True)
class Part:
    """Goals of make, and how the paths begin whose changes they test."""

    goals: str
    paths: tuple[str, ...]

    def lines(self, changed: Mapping[str, int]) -> int:
        """How many of the changed lines are under the paths."""
        return sum(lines for path, lines in changed.items() if path.startswith(self.paths))


def read(text: str) -> list[Part]:
    """The parts of a schedule: a line of goals each, with indented lines of paths below it."""
    parts: list[Part] = []
    for line in text.splitlines():
        if line.startswith(" "):
            parts[-1] = Part(parts[-1].goals, (*parts[-1].paths, *line.split()))
        elif not line.startswith("#"):
            parts.append(Part(line, ()))
    return parts


def choose(parts: Sequence[Part], changed: Mapping[str, int], count: int) -> tuple[int, str]:
    """The number of the part for a commit, and why.

    Args:
        parts: The schedule.
        changed: The changed lines of each path.
        count: The number of the commit.
    """
    turn, place = divmod(count, 3)
    lines = [part.lines(changed) for part in parts]
    if place == 0:
        return turn % len(parts), "in turn"
    if not any(lines):
        return count % len(parts), "in turn, since no part is changed"
    most = [number for number, found in enumerate(lines) if found == max(lines)]
    return most[(2 * turn + place) % len(most)], f"{max(lines)} of {sum(changed.values())} changed lines"


def changes(log: str) -> dict[str, int]:
    """The changed lines of each path, from what ``git log --numstat -z --format=`` prints."""
    found: dict[str, int] = {}
    fields = iter(log.split("\0"))
    for field in fields:
        if field in ("", "\n"):  # at the end of a commit
            continue
        added, deleted, path = field.strip("\n").split("\t")
        if not path:  # a new name: the old one and the new one follow
            _, path = next(fields), next(fields)
        lines = 1 if added == "-" else int(added) + int(deleted)  # a file that isn't text, or lines
        found[path] = found.get(path, 0) + lines
    return found


def git(*arguments: str) -> str:
    """What git prints."""
    return subprocess.run(
        ["git", *arguments], cwd=SCHEDULE.parent, check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def main() -> None:
    """Prints the number of the part, and why it is that."""
    base = os.environ.get("CI_BASE")
    log = git("log", "--no-merges", "--numstat", "-M", "-z", "--format=", f"{base}..HEAD" if base else f"-{COMMITS}")
    number, why = choose(read(SCHEDULE.read_text()), changes(log), int(git("rev-list", "--count", "HEAD")))
    print(number, why)


if __name__ == "__main__":
    main()
