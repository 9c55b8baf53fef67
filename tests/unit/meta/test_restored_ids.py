"""A database that was restored has forgotten which ids it had given to tasks; their manifests are there."""

from __future__ import annotations

from pathlib import Path

from support.meta_database import database_url
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.wire.clients.route_mark import RouteMark
from tistream_meta.database.repository import FORGOTTEN_IDS, Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Child
from tistream_meta.decide.scheduling_rules import SchedulingRules
from tistream_meta.decide.split_merge import DEFAULT_RULES, halves
from tistream_meta.decide.task_phases import PhaseEvent
from tistream_meta.decide.task_policy import Command
from tistream_meta.owner.owner_copy import OwnerCopy
from tistream_meta.owner.reports import ReportedTask, Reports
from tistream_meta.owner.scheduler import Scheduler

ACME, OTHER = TenantKey("7", "acme"), TenantKey("7", "other")
WHOLE = KeySpan(b"", b"")
HALVES = halves(WHOLE, b"m")
assert HALVES is not None


def test_ids_are_given_out_far_above_those_that_may_have_been_forgotten(tmp_path: Path) -> None:
    repository = Repository.open(database_url(tmp_path), "meta-1")
    repository.prepare()
    repository.take_ownership(60_000, "http://meta")
    repository.take_ownership(60_000, "http://meta", RouteMark(1, repository.plan().version))
    assert repository.new_task_ids(1) == 1, "nothing was forgotten"
    repository.take_ownership(60_000, "http://meta", RouteMark(5, repository.plan().version + 1))
    assert repository.new_task_ids(1) == 2 + FORGOTTEN_IDS


def test_a_seal_whose_children_cannot_be_holds_no_other_tenant(tmp_path: Path) -> None:
    repository = Repository.open(database_url(tmp_path), "meta-1")
    repository.prepare()
    repository.take_ownership(60_000, "http://meta")
    start = Start("i", repository.new_start())
    repository.register("sorter-1", "sorter", "http://sorter-1", start)
    for tenant in (ACME, OTHER):
        repository.create_tenant(tenant)
        repository.activate(tenant, 42, [WHOLE])
    repository.execute_moves([Command(task, PhaseEvent.HAND_OVER, "sorter-1", "test") for task in (1, 2)])
    book, reports = OwnerCopy(repository.plan()), Reports()
    scheduler = Scheduler(repository, reports, SchedulingRules())
    taken = tuple(Child(1 + at, span) for at, span in enumerate(HALVES))  # 2 is the other tenant's
    free = tuple(Child(11 + at, span) for at, span in enumerate(HALVES))
    reports.take("sorter-1", start, 1, [ReportedTask(1, 1, sealed=taken), ReportedTask(2, 1, sealed=free)], 0)
    scheduler.touch([1, 2])
    for _ in range(2):
        for change in scheduler.step(book, {"sorter-1": NodeState.ALIVE}, 0):
            book.take(change)
    assert sorted(book.tasks) == [1, 11, 12]
    for sequence, at_ms in ((2, 1), (3, 1 + DEFAULT_RULES.settle_ms)):
        working = [ReportedTask(task, 1, progress_ts=sequence) for task in (11, 12)]
        reports.take("sorter-1", start, sequence, [ReportedTask(1, 1, sealed=taken), *working], at_ms)
        for change in scheduler.step(book, {"sorter-1": NodeState.ALIVE}, at_ms):
            book.take(change)
    assert book.sealing == {11, 12}, "cold neighbours of the other tenant are merged as ever"
