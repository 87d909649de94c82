"""Timing in turns, with functions that move a clock of their own."""

import itertools

import pytest

from ferroket.bench import timing


@pytest.fixture
def clock(monkeypatch):
    """The time, in seconds, as a list of one number."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    return now


def test_medians_leave_the_first_calls_of_a_turn_out(clock):
    turns = []

    def contender(name, quick, slow):
        def call():
            first = not turns or turns[-1] != name
            turns.append(name)
            clock[0] += slow if first else quick

        return call

    contenders = {"a": contender("a", 0.01, 5.0), "b": contender("b", 0.02, 7.0)}
    assert timing.paired(contenders, rounds=3) == pytest.approx({"a": 0.01, "b": 0.02})
    # Four calls of each to warm up, and then for 0.1 s in each of three turns.
    assert [(name, len(list(calls))) for name, calls in itertools.groupby(turns)] == [
        ("a", 4),
        ("b", 4),
        *[("a", 10), ("b", 5)] * 3,
    ]


@pytest.mark.parametrize(("seconds", "a_turn"), [(0.3, 3), (60.0, 1)])
def test_slow_functions_are_called_a_few_times_a_turn(clock, seconds, a_turn):
    calls = []

    def slow():
        calls.append(1)
        clock[0] += seconds

    assert timing.paired({"slow": slow}, rounds=2, warmup=1) == {"slow": pytest.approx(seconds)}
    assert len(calls) == 1 + 2 * a_turn
