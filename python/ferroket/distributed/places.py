"""Where ranks are, for messages: those in the same place together, however many they are."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from ferroket.distributed.affinity import describe as describe_runs

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

_SHOWN_HOSTS = 4
_SHOWN_RUNS = 16


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> list[tuple[Key, list[Item]]]:
    """Items with the same key together, in the order of the first of each."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())


def describe_ranks(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Ranks and their hosts in short: ``rank 1 (n1)``, ``ranks 0-63, 65 (n1, n2)``.

    Args:
        ranks: in ascending order.
        hosts: the host of each rank of the job.
    """
    runs = describe_runs(tuple(ranks)).split(",")
    shown = ", ".join(runs[:_SHOWN_RUNS]) + (f" and others, {len(ranks)} in all" if len(runs) > _SHOWN_RUNS else "")
    names = list(dict.fromkeys(hosts[rank] for rank in ranks))
    on = ", ".join(names[:_SHOWN_HOSTS]) + (
        f" and {len(names) - _SHOWN_HOSTS} more" if len(names) > _SHOWN_HOSTS else ""
    )
    return f"rank{'s' * (len(ranks) > 1)} {shown} ({on})"
