"""A merge of which one half is sealed, and an owner whose database was restored to before the order."""

from __future__ import annotations

from pathlib import Path

from support.meta_database import database_url
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream_meta.database.repository import Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Child
from tistream_meta.decide.scheduling_rules import SchedulingRules
from tistream_meta.decide.split_merge import halves
from tistream_meta.decide.task_phases import PhaseEvent
from tistream_meta.decide.task_policy import Command
from tistream_meta.owner.owner_copy import OwnerCopy
from tistream_meta.owner.reports import ReportedTask, Reports
from tistream_meta.owner.scheduler import Scheduler

ACME = TenantKey("7", "acme")
CHILD = Child(900, KeySpan(b"", b""))
STOP = 777


class Restored:
    """An owner that knows two tasks and no order, and what their sorter tells of them."""

    def __init__(self, folder: Path) -> None:
        repository = Repository.open(database_url(folder), "meta-1")
        repository.prepare()
        repository.take_ownership(60_000, "http://meta")
        self.start = Start("i", repository.new_start())
        repository.register("sorter-1", "sorter", "http://sorter-1", self.start)
        repository.create_tenant(ACME)
        repository.activate(ACME, 42, halves(KeySpan(b"", b""), b"m") or ())
        repository.execute_moves([Command(task, PhaseEvent.HAND_OVER, "sorter-1", "test") for task in (1, 2)])
        self.book, self.reports = OwnerCopy(repository.plan()), Reports()
        self.scheduler = Scheduler(repository, self.reports, SchedulingRules())
        self.now_ms = 0

    def hears(self, *told: ReportedTask) -> None:
        for _ in range(3):
            self.now_ms += 1_000
            self.reports.take("sorter-1", self.start, self.now_ms, list(told), self.now_ms)
            for change in self.scheduler.step(self.book, {"sorter-1": NodeState.ALIVE}, self.now_ms):
                self.book.take(change)


def test_the_other_half_is_ordered_to_end_too_and_the_child_takes_their_place(tmp_path: Path) -> None:
    owner = Restored(tmp_path)
    sealed = ReportedTask(1, 1, sealed=(CHILD,))
    owner.hears(sealed, ReportedTask(2, 1, progress_ts=STOP, stop_at=STOP))
    assert owner.book.sealing == {1, 2}
    seal = owner.book.tasks[2].seal
    assert seal is not None
    assert (seal.children, seal.stop_at, seal.final) == ((CHILD,), STOP, True)
    owner.hears(sealed, ReportedTask(2, 1, sealed=(CHILD,)))
    assert list(owner.book.tasks) == [CHILD.task_id]


def test_one_that_has_gone_on_is_not_ordered_to_end_elsewhere(tmp_path: Path) -> None:
    owner = Restored(tmp_path)
    owner.hears(ReportedTask(1, 1, sealed=(CHILD,)), ReportedTask(2, 1, progress_ts=STOP + 9))
    assert owner.book.sealing == set()
