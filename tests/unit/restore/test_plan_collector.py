"""The plan of a restore is deleted once the restore has ended, however it ended, and never while it waits or runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from support.audit_world import Through
from support.restore_runs import ACME, Killed, Process, RestoreRuns
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.bulk.restores import ParquetPlace
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_ingest.metrics import IngestMetrics
from tistream_ingest.restore.object_targets import ParquetObjects
from tistream_ingest.restore.plan_collector import PlanCollector

BIG = ("shop", "big")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestoreRuns:
    monkeypatch.setattr(ParquetObjects, "chunk_rows", 600)
    return RestoreRuns(tmp_path)


def collect(runs: RestoreRuns, objects: MemoryObjectStore | None = None) -> float:
    """One pass, over the real routes of the meta server; the number of plans that it has deleted."""
    store = runs.points.world.objects if objects is None else objects
    meta = MetaClient(HttpClient(transport=Through(runs.meta.client)), "http://meta")
    registry = CollectorRegistry()
    PlanCollector(store, meta, IngestMetrics(registry)).step()
    return registry.get_sample_value("tistream_ingest_collected_objects_total") or 0.0


def killed_at_a_chunk(runs: RestoreRuns, place: str) -> str:
    """A restore that is planned, and whose process was killed; its id."""
    name = runs.queue(ParquetPlace(kind="parquet", url=runs.url(place)), runs.points.world.end_ts, BIG)
    with pytest.raises(Killed):
        runs.claim(Process(runs.points.world.objects, at=1)).attempt()
    return name


def planned(runs: RestoreRuns, name: str) -> bool:
    keys = [one.key for one in runs.points.world.objects.list_after(layout.RESTORES)]
    return layout.restore_plan(ACME, name) in keys


def test_the_plan_of_a_cancelled_restore_goes_and_that_of_a_running_one_stays(runs: RestoreRuns) -> None:
    cancelled, running = killed_at_a_chunk(runs, "a"), killed_at_a_chunk(runs, "b")
    collect(runs)
    assert (planned(runs, cancelled), planned(runs, running)) == (True, True)
    runs.book.cancel(ACME, cancelled)
    assert collect(runs) == 1
    assert (planned(runs, cancelled), planned(runs, running)) == (False, True)
    runs.lease_ends()
    runs.claim().attempt()
    assert runs.info(running).state == "done"


def test_a_restore_that_is_queued_and_planned_after_the_list_keeps_its_plan(runs: RestoreRuns) -> None:
    """The list of unfinished restores is newer than that of plans."""

    class Racing(MemoryObjectStore):
        def list_after(self, prefix, after="", delimiter=""):  # type: ignore[no-untyped-def]
            yield from list(runs.points.world.objects.list_after(prefix, after, delimiter))
            names.append(killed_at_a_chunk(runs, "late"))

        def delete(self, key: str) -> None:
            runs.points.world.objects.delete(key)

    names: list[str] = []
    old = killed_at_a_chunk(runs, "old")
    runs.book.cancel(ACME, old)
    collect(runs, Racing())
    assert (planned(runs, old), planned(runs, names[0])) == (False, True)


def test_only_plans_are_parsed_as_plans() -> None:
    name = "0" * 32
    key = layout.restore_plan(ACME, name)
    assert layout.parse_restore_plan(key) == (ACME, name)
    for other in (key + "x", key.replace("plan", "note"), key.replace("restore/", "served/"), key[:-6]):
        assert layout.parse_restore_plan(other) is None
