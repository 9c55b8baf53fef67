"""Restores through the real API, meta server and ingest service, over HTTP: from the call to the files, what is refused
and how, and the command that follows one. Only Spark is left out (test_platform_restore_on_spark.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from support import golden
from support.api_world import Platform
from support.http_world import CLOCK, Server, never_superseded
from support.local_chunks import LocalChunks
from support.platform import free_port
from support.points_world import point_world
from support.pull import Consumer
from support.waiting import eventually
from tistream.errors import ClaimEnded
from tistream.storage.open import open_objects
from tistream.wire.bulk.restores import NewRestore, ParquetPlace, RestoreName, RestoreReport, RestoreWork
from tistream_cli.app import app
from tistream_ingest.app import ProcessEnvironment, build_app
from tistream_ingest.jobs.local import LocalRunner
from tistream_ingest.settings import IngestSettings

EVERYTHING = golden.load("everything")
ENDED = ("done", "failed", "cancelled")


@dataclass
class Loaded:
    """A platform with a tenant, and an ingest process whose targets are below `folder`."""

    platform: Platform
    consumer: Consumer
    folder: Path

    def post(self, **members: Any) -> tuple[int, dict[str, Any]]:
        body = {"scope": {"database": "shop", "table": "orders"}, "ts": str(EVERYTHING.end_ts), **members}
        answer = self.consumer.client.post(f"{self.consumer.base}/restores", json=body)
        return answer.status_code, answer.json()

    def parquet(self, name: str) -> dict[str, str]:
        return {"kind": "parquet", "url": f"file://{self.folder}/targets/{name}"}

    def ended(self, restore_id: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def over() -> bool:
            found.update(self.consumer.get(f"/restores/{restore_id}"))
            return found["state"] in ENDED

        eventually(over)
        return found


@pytest.fixture(scope="module")
def loaded(everything: tuple[Platform, Consumer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    up, consumer = everything
    folder = tmp_path_factory.mktemp("restores")
    (folder / "dsn").mkdir()
    port = free_port()
    settings = IngestSettings(
        port=port,
        node_id="ingest-1",
        meta_url=up.world.meta.url,
        restore_urls=f"file:///nowhere, file://{folder}/targets",
        restore_dsn_dir=str(folder / "dsn"),
        restores_ms=50,
    )
    there = up.world.objects
    outside = ProcessEnvironment(LocalRunner(open_objects, there), LocalChunks(there), end=never_superseded)
    ingest = Server(build_app(settings, there, CLOCK, outside), port)
    try:
        one = Loaded(up, consumer, folder)
        eventually(lambda: one.post(target=one.parquet("first"))[0] == 202)
        yield one
    finally:
        ingest.stop()


def test_a_database_is_restored_and_each_table_has_its_rows_and_a_checksum(loaded: Loaded) -> None:
    status, begun = loaded.post(scope={"database": "shop"}, target=loaded.parquet("shop"))
    assert status == 202, begun
    assert begun["state"] in ("queued", "running")
    found = loaded.ended(begun["restore_id"])
    assert found["state"] == "done", found
    assert len(found["tables"]) > 30
    for table in found["tables"]:
        rows = point_world("everything").lines(table["database"], table["table"], EVERYTHING.end_ts)
        assert table["rows"] == table["rows_done"] == len(rows)
        assert table["checksum"]
    orders = pl.read_parquet(loaded.folder / "targets" / "shop" / "shop.orders" / "*.parquet")
    assert orders.height == len(point_world("everything").lines("shop", "orders", EVERYTHING.end_ts))
    assert begun["restore_id"] in [one["restore_id"] for one in loaded.consumer.get("/restores")["restores"]]


@pytest.mark.parametrize(
    ("members", "status", "said"),
    [
        ({"scope": {"database": "shop", "table": "none"}}, 404, "shop.none"),
        ({"scope": {"database": "none"}}, 404, "none"),
        ({"scope": {"table": "orders"}}, 400, "scope.database"),
        ({"scope": {"databse": "shop"}}, 400, "databse"),
        ({"ts": "1"}, 410, "earliest"),
        ({"ts": "soon"}, 400, "soon"),
        ({"ts": str((1 << 63) - 1)}, 400, "future"),
        ({"if_exists": "append"}, 400, "if_exists"),
        ({"target": {"kind": "iceberg", "url": "s3://a/b"}}, 400, "iceberg"),
        ({"target": {"kind": "parquet"}}, 400, "url"),
        ({"target": {"kind": "parquet", "url": "s3://platform/committed"}}, 422, "RESTORE_URLS"),
        ({"target": {"kind": "sql-files", "url": "/etc"}}, 422, "RESTORE_URLS"),
        ({"target": {"kind": "mysql", "dsn_file": "/etc/passwd"}}, 422, "RESTORE_DSN_DIR"),
        ({"target": {"kind": "mysql", "dsn_file": "../../secret"}}, 422, "RESTORE_DSN_DIR"),
        ({"target": {"kind": "mysql", "dsn_file": "a", "rename": {"shop": "MySQL"}}}, 400, "rename"),
        ({"target": {"kind": "mysql", "dsn_file": "a", "rename": {"shop": "a\0b"}}}, 400, "rename"),
    ],
)
def test_bad_input_is_refused_by_name(loaded: Loaded, members: dict[str, Any], status: int, said: str) -> None:
    before = len(loaded.consumer.get("/restores")["restores"])
    found, problem = loaded.post(**{"target": loaded.parquet("bad"), **members})
    assert (found, said in str(problem)) == (status, True), problem
    assert "/etc/passwd" not in str(problem)
    if status == 410:
        assert int(problem["earliest_ts"]) > 1
    assert len(loaded.consumer.get("/restores")["restores"]) == before
    assert not (loaded.folder / "targets" / "bad").exists()


def test_a_table_that_is_there_ends_the_restore_with_its_name(loaded: Loaded) -> None:
    for state in ("done", "failed"):
        _, begun = loaded.post(target=loaded.parquet("twice"))
        found = loaded.ended(begun["restore_id"])
        assert found["state"] == state
    assert "shop.orders is there" in found["reason"]


def test_a_process_whose_claim_has_ended_gets_that_answer(loaded: Loaded) -> None:
    _, begun = loaded.post(target=loaded.parquet("late"))
    loaded.ended(begun["restore_id"])
    wanted = NewRestore(
        restore_id=begun["restore_id"],
        ts=begun["ts"],
        tables=[RestoreName(database="shop", table="orders")],
        target=ParquetPlace(kind="parquet", url="file:///late"),
        if_exists="fail",
    )
    work = RestoreWork(cluster_id="7", tenant_id="acme", epoch=1, wanted=wanted)
    report = RestoreReport(epoch=1, state="running", tables=[])
    with pytest.raises(ClaimEnded, match="is done"):
        loaded.platform.world.client.report_restore(work, report)


def test_an_unknown_restore_is_a_404_and_an_ended_one_stays_as_it_is(loaded: Loaded) -> None:
    client, base = loaded.consumer.client, loaded.consumer.base
    for name in ("0" * 32, "none", "..", "%2e%2e"):
        assert client.get(f"{base}/restores/{name}").status_code in (400, 404), name
        assert client.delete(f"{base}/restores/{name}").status_code in (400, 404, 405), name
    _, begun = loaded.post(target=loaded.parquet("ended"))
    assert loaded.ended(begun["restore_id"])["state"] == "done"
    assert client.delete(f"{base}/restores/{begun['restore_id']}").json()["state"] == "done"


def command(loaded: Loaded, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setenv("TISTREAM_URL", loaded.consumer.url)
    return CliRunner().invoke(app, ["restore", "--cluster", "7", "--tenant", "acme", "--on-platform", *arguments])


def test_the_command_follows_a_restore_to_its_end(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    into = f"sql:file://{loaded.folder}/targets/command"
    found = command(loaded, monkeypatch, "shop.orders", "--into", into, "--dialect", "mariadb")
    assert found.exit_code == 0, found.output
    rows = len(point_world("everything").lines("shop", "orders", EVERYTHING.end_ts))
    assert f"shop.orders: {rows} rows, checksum " in found.output
    assert len(list((loaded.folder / "targets" / "command").glob("*.sql"))) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--into", "parquet:file:///elsewhere"], "RESTORE_URLS"),
        (["--into", "mysql://u:p@h/d"], "dsn:FILE"),
        (["--into", "parquet:s3://a/b", "--rename", "a=b"], "dsn:FILE"),
        (["--into", "dsn:copy", "--rename", "ab"], "OLD=NEW"),
        (["--into", "dsn:copy", "--as", "x"], "cannot be used with --as or --into-file"),
    ],
)
def test_the_command_says_what_is_wrong(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    found = command(loaded, monkeypatch, "shop.orders", *arguments)
    assert found.exit_code != 0
    assert said in f"{found.output} {found.exception}"
