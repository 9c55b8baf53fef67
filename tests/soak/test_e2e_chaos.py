"""Chaos: real processes and disks are struck under `tistream verify` and a simulated TiKV."""

from __future__ import annotations

from pathlib import Path

from support.chaos.plan import EVERYTHING, OWNER, Fault, Kind
from support.chaos.run import Options, run
from support.waiting import PATIENCE_S

# Short ones of each kind; `make chaos` has all of them, longer, on every process, in the order of a seed.
FAULTS = (
    Fault(Kind.PAUSE, ("dispatcher",), 6.0),
    Fault(Kind.KILL, ("schema",)),
    Fault(Kind.FULL, ("data",), 9.0),
    Fault(Kind.KILL, ("worker",)),
    Fault(Kind.READ_ONLY, ("pool",), 9.0),
    Fault(Kind.KILL, ("api", "meta")),
    Fault(Kind.PAUSE, (EVERYTHING,), 4.0),
    Fault(Kind.KILL, ("sorter",)),
)


def test_nothing_is_lost_doubled_or_misordered_whatever_is_struck(tmp_path: Path) -> None:
    """However slow the machine: that the lag comes back is shown here, and how fast by `make chaos`."""
    options = Options(
        tmp_path,
        rows_per_s=300,
        recover_s=PATIENCE_S,
        disk_bytes=1 << 30,
        simulate=("--txns-per-s", "80", "--ddl-per-min", "10"),
        faults=FAULTS,
    )
    outcome = run(options)
    print(outcome.table())
    assert not outcome.problems, "\n".join(outcome.problems)
    assert outcome.verify["events_compared_with_truth"] == outcome.verify["rows"] > 1_000
    of_disks = (Kind.FULL, Kind.READ_ONLY)
    wanted = [fault for fault in FAULTS if not outcome.not_run or fault.kind not in of_disks]
    assert [struck.fault for struck in outcome.struck] == wanted
    assert all(reason.startswith("NOT RUN") for reason in outcome.not_run)


MANY = (
    Fault(Kind.SPLIT, ("task",)),
    Fault(Kind.MOVE, ("task",)),
    Fault(Kind.PAUSE, ("sorter",), 14.0),  # past the time after which it is lost: its tasks are another's when it wakes
    Fault(Kind.MERGE, ("task",)),
    Fault(Kind.RESTORE, ("database",), 30.0),  # from before the merge
    Fault(Kind.KILL, (OWNER,)),
    Fault(Kind.DRAIN, ("sorter",), 4.0),
)


def test_nothing_is_lost_doubled_or_misordered_while_tasks_are_moved_split_and_merged(tmp_path: Path) -> None:
    options = Options(
        tmp_path,
        rows_per_s=300,
        recover_s=PATIENCE_S,
        simulate=("--txns-per-s", "80", "--ddl-per-min", "10"),
        faults=MANY,
        many=True,
    )
    outcome = run(options)
    print(outcome.table())
    assert not outcome.problems, "\n".join(outcome.problems)
    assert outcome.verify["events_compared_with_truth"] == outcome.verify["rows"] > 1_000
    assert [struck.fault for struck in outcome.struck] == list(MANY)
    assert outcome.seals >= 1
