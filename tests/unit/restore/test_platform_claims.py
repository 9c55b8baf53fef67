"""The loops of an ingest process: a restore is claimed, tried again after failures, given up after too many, and ended
when another process has it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from support.audit_world import Through
from support.restore_runs import ACME, Process, RestoreRuns
from tistream.errors import Unavailable
from tistream.storage import layout
from tistream.wire.bulk.restores import ParquetPlace
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_ingest.restore.claims import Claims
from tistream_ingest.restore.object_targets import ParquetObjects
from tistream_ingest.restore.restore_attempt import RestoreAttempt
from tistream_ingest.restore.restore_plan import FAILURES_MAX

BIG = ("shop", "big")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestoreRuns:
    monkeypatch.setattr(ParquetObjects, "chunk_rows", 600)
    return RestoreRuns(tmp_path)


class Losing(Through):
    """Loses the next `lost` requests."""

    lost = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.lost:
            self.lost -= 1
            raise httpx.ConnectError("away for a moment", request=request)
        return super().handle_request(request)


def claims(runs: RestoreRuns, process: Process, pauses: list[float], through: Through | None = None) -> Claims:
    """The loops, over the real routes of the meta server."""
    meta = MetaClient(HttpClient(transport=through or Through(runs.meta.client)), "http://meta")
    return Claims(
        meta,
        "ingest-1",
        1_000,
        lambda work, report: RestoreAttempt(
            work,
            runs.points.world.objects,
            runs.reads(),
            process,
            runs.allowed(),
            report,
        ),
        sleep=pauses.append,
    )


def queue(runs: RestoreRuns) -> str:
    return runs.queue(ParquetPlace(kind="parquet", url=runs.url("a")), runs.points.world.end_ts, BIG)


def test_a_restore_is_claimed_and_run_and_without_one_the_loop_waits(runs: RestoreRuns) -> None:
    one = claims(runs, Process(runs.points.world.objects), [])
    assert one.step() == 1_000
    name = queue(runs)
    assert one.step() == 0
    assert runs.info(name).state == "done"
    assert one.step() == 1_000


def test_after_a_failure_it_is_tried_again_and_a_lot_of_chunks_resets_the_count(runs: RestoreRuns) -> None:
    name, pauses, failing = queue(runs), list[float](), {1, 2, 9}
    calls = iter(range(1_000))

    def fail() -> None:
        if next(calls) in failing:
            raise Unavailable("the store is away for a moment")

    assert claims(runs, Process(runs.points.world.objects, meanwhile=fail), pauses).step() == 0
    assert runs.info(name).state == "done"
    assert pauses == [1.0, 2.0, 1.0]


def test_a_store_that_stays_away_ends_the_restore_with_its_reason_and_without_its_plan(runs: RestoreRuns) -> None:
    name, pauses = queue(runs), list[float]()

    def fail() -> None:
        raise Unavailable("the store is away")

    claims(runs, Process(runs.points.world.objects, meanwhile=fail), pauses).step()
    info = runs.info(name)
    assert info.state == "failed"
    assert info.reason == f"the store is away (after {FAILURES_MAX} attempts)"
    assert len(pauses) == FAILURES_MAX - 1
    keys = [one.key for one in runs.points.world.objects.list_after("restore/")]
    assert layout.restore_plan(ACME, name) not in keys


def test_a_meta_server_that_is_away_for_a_moment_costs_no_claim_and_failures_are_counted_on(runs: RestoreRuns) -> None:
    name, pauses, through = queue(runs), list[float](), Losing(runs.meta.client)

    def fail() -> None:
        through.lost = 1  # the report of this failure
        raise Unavailable("the store is away")

    claims(runs, Process(runs.points.world.objects, meanwhile=fail), pauses, through).step()
    info = runs.info(name)
    assert (info.state, info.reason) == ("failed", f"the store is away (after {FAILURES_MAX} attempts)")
    assert runs.book.one(ACME, name).epoch == 1
    assert len(pauses) == FAILURES_MAX, "the report that it has failed was sent again"


def test_the_beat_renews_the_claim_while_a_chunk_takes_long(runs: RestoreRuns) -> None:
    name = queue(runs)

    def long_chunk() -> None:
        runs.lease_ends()
        one.beat()
        assert runs.book.claim("ingest-2") is None, "the claim was renewed"

    one = claims(runs, Process(runs.points.world.objects, meanwhile=long_chunk), [])
    one.step()
    assert runs.info(name).state == "done"
    assert runs.book.one(ACME, name).epoch == 1


def test_a_beat_that_is_refused_ends_the_attempt(runs: RestoreRuns) -> None:
    name = queue(runs)

    def overtaken() -> None:
        runs.lease_ends()
        runs.book.claim("ingest-2")
        one.beat()

    process = Process(runs.points.world.objects, meanwhile=overtaken)
    one = claims(runs, process, [])
    assert one.step() == 0
    assert process.written == 2 * process.slots, "it ends at the next report"
    assert runs.info(name).state == "running"
    assert runs.book.one(ACME, name).node_id == "ingest-2"
