"""A merge whose tasks do not come to rest is taken back, and not ordered again at once: they stood still for it."""

from __future__ import annotations

from pathlib import Path

from support.meta_database import database_url
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream_meta.database.repository import Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.scheduling_rules import SchedulingRules
from tistream_meta.decide.split_merge import DEFAULT_RULES, halves
from tistream_meta.decide.task_phases import PhaseEvent
from tistream_meta.decide.task_policy import Command
from tistream_meta.owner.owner_copy import OwnerCopy
from tistream_meta.owner.reports import ReportedTask, Reports
from tistream_meta.owner.scheduler import Scheduler

ACME = TenantKey("7", "acme")
BEAT_MS = 1_000


class Merges:
    """An owner with one sorter, that tells of two cold tasks that go on and never stop where they are told to."""

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

    def until(self, ordered: bool) -> int:
        """Milliseconds until both tasks are ordered to merge, or until they are not any more."""
        began_ms = self.now_ms
        while (self.book.sealing == {1, 2}) is not ordered:
            self.now_ms += BEAT_MS
            assert self.now_ms - began_ms < 2 * DEFAULT_RULES.pause_ms
            told = [ReportedTask(task, 1, progress_ts=self.now_ms) for task in (1, 2)]
            self.reports.take("sorter-1", self.start, self.now_ms, told, self.now_ms)
            for change in self.scheduler.step(self.book, {"sorter-1": NodeState.ALIVE}, self.now_ms):
                self.book.take(change)
        return self.now_ms - began_ms


def test_a_merge_that_was_taken_back_is_ordered_again_after_a_pause_and_has_its_whole_time_then(tmp_path: Path) -> None:
    merges = Merges(tmp_path)
    assert merges.until(ordered=True) >= DEFAULT_RULES.settle_ms
    patience_ms = merges.until(ordered=False)
    assert patience_ms >= DEFAULT_RULES.patience_ms
    assert merges.until(ordered=True) >= DEFAULT_RULES.pause_ms
    assert merges.until(ordered=False) == patience_ms
