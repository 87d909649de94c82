"""The division of a node's cores among its ranks."""

import os

import pytest

from ferroket.distributed import affinity


def own_core(cpu: int) -> tuple[int, int]:
    return (0, cpu)


def two_threads_a_core(cpu: int) -> tuple[int, int]:
    """Eight logical cores on four physical ones, the threads of a core four apart, as Linux numbers them."""
    return (0, cpu % 4)


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        pytest.param([(0, 1)], [(0, 1)], id="alone, keeps all"),
        pytest.param([(0, 1)] * 2, [(0,), (1,)], id="one core each"),
        pytest.param([(0, 1, 2, 3)] * 2, [(0, 1), (2, 3)], id="blocks of neighbours"),
        pytest.param([(2, 5, 6, 9)] * 2, [(2, 5), (6, 9)], id="cores that aren't neighbours by number"),
        pytest.param([(0, 1, 2, 3, 4)] * 2, [(0, 1), (2, 3)], id="equal blocks leave a core idle"),
        pytest.param([(0, 1)] * 5, [(0,), (1,), (0,), (1,), (0,)], id="more ranks than cores take turns"),
        pytest.param([(0, 1, 2)] * 2, [(0,), (1,)], id="three cores for two"),
        pytest.param([(0,), (1,)], [(0,), (1,)], id="bound by the launcher"),
        pytest.param([(0, 1), (2, 3)], [(0, 1), (2, 3)], id="bound to blocks by the launcher"),
        pytest.param(
            [(0, 1), (0, 1), (2, 3), (2, 3)], [(0,), (1,), (2,), (3,)], id="bound to sockets, divided in each"
        ),
    ],
)
def test_plan(masks: list[affinity.Cores], expected: list[affinity.Cores]) -> None:
    assert affinity.plan(masks, own_core) == tuple(expected)


def test_hyperthreads_of_a_core_stay_together() -> None:
    everything = tuple(range(8))
    assert affinity.plan([everything] * 2, two_threads_a_core) == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert affinity.plan([everything] * 4, two_threads_a_core) == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_the_running_system_has_a_topology() -> None:
    physical = {affinity.physical_core(cpu) for cpu in affinity.allowed()}
    assert 1 <= len(physical) <= len(affinity.allowed())


@pytest.mark.parametrize(
    ("own", "text"),
    [((0,), "0"), ((0, 1, 2, 3), "0-3"), ((0, 2, 3, 8), "0,2-3,8"), ((), "")],
)
def test_describe(own: affinity.Cores, text: str) -> None:
    assert affinity.describe(own) == text


@pytest.mark.skipif(not affinity.can_bind(), reason="this system doesn't let a process choose its cores")
def test_bind_reaches_every_thread() -> None:
    import threading

    masks: list[set[int]] = []
    bound, done = threading.Event(), threading.Event()

    def early() -> None:
        bound.wait()
        masks.append(os.sched_getaffinity(0))
        done.set()

    before = affinity.allowed()
    thread = threading.Thread(target=early)
    thread.start()
    try:
        affinity.bind(before[:1])
        bound.set()
        done.wait()
        assert masks == [{before[0]}]
    finally:
        bound.set()
        thread.join()
        affinity.bind(before)
    assert affinity.allowed() == before
