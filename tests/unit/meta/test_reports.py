"""What the owner makes of reports: loads that were measured, progress that moves, epochs that the database forgot."""

from __future__ import annotations

from dataclasses import replace

from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.model import Task
from tistream_meta.owner.reports import MEASURING_MS, ReportedTask, Reports

TASK = Task(1, TenantKey("c", "t"), KeySpan(b"", b""), "s1", 3)
FIRST, NEXT = Start("a", 1), Start("b", 2)


def told(reports: Reports, node: str, start: Start, sequence: int, now_ms: int, **what: object) -> None:
    reports.take(node, start, sequence, [replace(ReportedTask(1, 3), **what)], now_ms)  # type: ignore[arg-type]


def test_a_load_counts_until_the_next_sorter_has_measured_its_own() -> None:
    reports = Reports()
    told(reports, "s1", FIRST, 1, 0, load=100.0)
    told(reports, "s1", FIRST, 2, MEASURING_MS, load=900.0)
    moved = replace(TASK, sorter_node="s2", task_epoch=4)
    assert reports.load(moved, MEASURING_MS) == 900
    for sequence, after_ms, load, expected in (
        (1, 0, 0.0, 900.0),
        (2, 20_000, 700.0, 900.0),
        (3, 30_000, 700.0, 700.0),
    ):
        now_ms = MEASURING_MS + 1_000 + after_ms
        told(reports, "s2", FIRST, sequence, now_ms, task_epoch=4, load=load)
        assert reports.load(moved, now_ms) == expected
    reports.keep({})
    assert reports.load(replace(moved, sorter_node="s3"), 0) == 0


def test_how_long_a_task_stands_still_is_told() -> None:
    reports = Reports()
    for sequence, (now_ms, progress_ts, still_ms) in enumerate(
        [(0, 5, 0), (700, 5, 700), (900, 6, 0), (1_000, 6, 100)]
    ):
        told(reports, "s1", FIRST, sequence + 1, now_ms, progress_ts=progress_ts)
        assert reports.last_report(TASK, now_ms).still_ms == still_ms


def test_whether_everybody_was_heard() -> None:
    reports = Reports()
    reports.take("s1", FIRST, 1, [], 0)
    assert reports.has_reports_of(["s1"])
    assert not reports.has_reports_of(["s1", "s2"])
    reports.forget()
    assert not reports.has_reports_of(["s1"])


def test_an_epoch_that_the_database_forgot_is_told_by_who_cannot_claim() -> None:
    reports = Reports()
    told(reports, "s1", FIRST, 1, 0, fenced_by=7)
    assert reports.claimed_by(TASK) == 7
    assert not reports.placement(TASK).held
    assert reports.claimed_by(replace(TASK, task_epoch=4)) is None, "of another epoch than it has now"
    assert reports.claimed_by(replace(TASK, sorter_node="s2")) is None, "of one that has it no more"
    told(reports, "s1", NEXT, 1, 0)
    assert reports.claimed_by(TASK) is None
    assert reports.placement(TASK).held
