"""What a chaos run calls a problem, and which faults a seed brings."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from support.chaos.outcome import Outcome, StatusSeen, Struck
from support.chaos.plan import DISKS, KILLED, PAUSED, Fault, Kind, faults
from tistream_verify.lag import LagSample

CLEAN: dict[str, Any] = {"clean": True, "violations": {}}
KILL = Fault(Kind.KILL, ("sorter",))


def outcome(*struck: Struck, lags: dict[int, int] | None = None, **more: Any) -> Outcome:
    """Seconds to lag in seconds; 1 s where nothing is said."""
    found = Outcome(1, 500, 15.0, struck=list(struck), verify=CLEAN)
    found.samples = [LagSample(second * 1000, (lags or {}).get(second, 1) * 1000, 0) for second in range(100)]
    for name, value in more.items():
        setattr(found, name, value)
    found.judge()
    return found


def struck(fault: Fault = KILL, begin: int = 10, end: int = 10, calm: int = 60, *statuses: StatusSeen) -> Struck:
    return Struck(fault, begin * 1000, end * 1000, calm * 1000, statuses)


def test_a_quick_recovery_is_no_problem() -> None:
    found = outcome(struck(), lags={12: 6, 13: 7, 14: 8})
    assert found.problems == []
    assert "| kill -9 sorter | 1 | 8.0 | 5.0 | 5.0 |" in found.table()


def test_a_slow_or_no_recovery_is_one() -> None:
    assert "after 21.0 s" in outcome(struck(), lags=dict.fromkeys(range(12, 31), 9)).problems[0]
    assert "did not come back" in outcome(struck(), lags=dict.fromkeys(range(12, 100), 9)).problems[0]


def test_what_verify_found_is_one() -> None:
    report = {"clean": False, "violations": {"twice": 1}, "first_violations": ["twice: it came again"]}
    assert "it came again" in outcome(verify=report).problems[0]
    assert outcome(verify={}).problems


def test_a_late_status_must_name_a_cause() -> None:
    nameless, named = StatusSeen(12_000, 6.0, None), StatusSeen(12_000, 6.0, {"stage": "sort", "reason": "x"})
    assert "nothing holds it" in outcome(struck(KILL, 10, 10, 60, nameless)).problems[0]
    assert outcome(struck(KILL, 10, 10, 60, named)).problems == []


@pytest.mark.parametrize("kind", [Kind.FULL, Kind.READ_ONLY])
def test_a_spoilt_disk_must_be_named(kind: Kind) -> None:
    fault = Fault(kind, ("objects",), 20.0)
    silent = StatusSeen(25_000, 9.0, {"stage": "push", "reason": "nothing newer"})
    told = StatusSeen(26_000, 9.0, {"stage": "sort", "reason": "cannot write x: [Errno 28] No space left on device"})
    assert "no status named the disk" in outcome(struck(fault, 10, 30, 60, silent)).problems[0]
    assert outcome(struck(fault, 10, 30, 60, silent, told)).problems == []
    by_minio = StatusSeen(26_000, 9.0, {"stage": "sort", "reason": "XMinioStorageFull (507): free drive threshold"})
    assert outcome(struck(fault, 10, 30, 60, silent, by_minio)).problems == []
    assert outcome(struck(fault, 10, 30, 60, StatusSeen(25_000, 1.0, None))).problems == [], "it held nothing up"
    assert outcome(struck(Fault(kind, ("data",), 20.0), 10, 30, 60, silent)).problems == [], "nothing could be pushed"
    nameless = StatusSeen(25_000, 9.0, None)
    assert "nothing holds it" in outcome(struck(Fault(kind, ("data",), 20.0), 10, 30, 60, nameless)).problems[0]


@pytest.mark.parametrize(
    ("fault", "trace", "foreseen"),
    [
        (Fault(Kind.KILL, ("jvm",)), {}, True),
        (Fault(Kind.KILL, ("meta",)), {}, False),
        (Fault(Kind.KILL, ("jvm",)), {"service": "api"}, False),
        (Fault(Kind.KILL, ("jvm",)), {"traceback": "KeyError"}, False),
        (Fault(Kind.KILL, ("jvm",)), {"ts": "1970-01-01T00:02:00+00:00"}, False),
    ],
)
def test_only_what_spark_says_of_its_dead_is_foreseen(fault: Fault, trace: dict[str, str], foreseen: bool) -> None:
    line = {"ts": "1970-01-01T00:00:12+00:00", "service": "sorter", "message": "m", "traceback": "py4j …", **trace}
    assert (outcome(struck(fault), traces=[line]).problems == []) is foreseen


def test_a_round_has_every_fault_and_its_order_is_the_seeds() -> None:
    one_round = len(KILLED) + len(PAUSED) + len(DISKS) + 6
    first = list(islice(faults(5, disks=True), one_round))
    assert first == list(islice(faults(5, disks=True), one_round))
    assert first != list(islice(faults(6, disks=True), one_round))
    singles = {(fault.kind, fault.targets[0]) for fault in first if len(fault.targets) == 1}
    assert singles == {*((Kind.KILL, t) for t in KILLED), *((Kind.PAUSE, t) for t in PAUSED), *DISKS}
    assert all(2 <= fault.seconds <= 20 for fault in first if fault.kind is not Kind.KILL)
    assert not any(fault.kind in (Kind.FULL, Kind.READ_ONLY) for fault in islice(faults(5, disks=False), 100))
