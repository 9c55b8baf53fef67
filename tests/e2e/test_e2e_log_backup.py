"""A log backup as the only source of a tenant, as a user adds it: `tistream up`, `tistream source add`, a pull."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from support import compare, golden, log_backup, pull
from support.command import patient_command
from support.golden import Delivery
from support.platform import Platform
from support.waiting import eventually
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream_cli.app import app as command

TENANT = TenantKey("7", "logged")


def say(*words: str) -> str:
    """What a command of `tistream` prints."""
    done = patient_command(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_log_backup_is_added_pulled_and_removed(up: Platform, tmp_path: Path) -> None:
    loaded, recorded = golden.load("everything"), log_backup.load("everything")
    bucket = tmp_path / "log"
    where = ("--cluster", "7", "--tenant", "logged", "--url", up.url)
    say("tenant", "create", "--cluster", "7", "--tenant", "logged", "--url", up.url)
    with up.patient_http() as http:
        tenant = f"{up.url}/v1/clusters/7/tenants/logged"
        sources = f"{tenant}/sources"
        missing = http.post(sources, json={"kind": "log-backup", "url": str(bucket)})
        assert (missing.status_code, "no directory" in missing.json()["detail"]) == (422, True)
        assert not bucket.exists()
        half = len(recorded.puts) // 2
        for key, body in recorded.puts[:half]:
            golden.put(bucket, Delivery(0, key, body))
        early = http.post(sources, json={"kind": "log-backup", "url": str(bucket)})
        assert (early.status_code, "schema_snap" in early.json()["detail"]) == (422, True)
        golden.put(up.objects, Delivery(0, layout.schema_snap(TENANT), loaded.schema_snap.data))
        say("tenant", "create", "--cluster", "7", "--tenant", "logged", "--wait", "--url", up.url)
        assert "log-1" in say("source", "add", "--log-backup", str(bucket), *where)

        def released_ts() -> int:
            return int(http.get(sources).json()[0]["released_ts"] or 0)

        eventually(lambda: released_ts() > recorded.start_ts)
        for key, body in recorded.puts[half:]:
            golden.put(bucket, Delivery(0, key, body))
        eventually(lambda: released_ts() == recorded.end_ts)

        def resolved() -> bool:
            status = http.get(f"{tenant}/status").json()
            return int(status["resolved_ts"]) == recorded.end_ts

        eventually(resolved)
        answer = http.get(f"{tenant}/changes", params={"start_ts": recorded.start_ts, "limit": 1_000_000})
        assert compare.tenant_differences(loaded, [pull.parse(line) for line in answer.content.splitlines()]) == []

        def waits() -> bool:
            """As the ingest service says; while it does not answer in its time, the source is `starting`."""
            [one] = http.get(sources).json()
            told = {store["store_id"] for store in one["stores"]} == {"1", "2", "3"}
            # it is days behind; a minute later, it also stands
            return told and one["state"] == "waiting" and "log backup" in one["reason"]

        def held() -> bool:
            hold = http.get(f"{tenant}/status").json()["held_by"] or {}
            return (hold.get("stage"), hold.get("object")) == ("push", "v1/global_checkpoint/")

        def listed() -> bool:
            shown = say("source", "list", *where)
            return "log backup" in shown and "slowest store" in shown

        for said in (waits, held, listed):
            eventually(said)
        other = http.post(sources, json={"kind": "log-backup", "url": str(tmp_path)})
        assert other.status_code == 409
        say("source", "remove", "log-1", *where)
        assert http.get(sources).json() == []
        largest = max((bucket / "v1/backupmeta").iterdir(), key=lambda path: path.stat().st_size)
        shown = say("inspect", str(largest), "--entries", "--rows", "3")
        assert "metadata of a log backup" in shown
        assert "entries (first 3 of" in shown


@pytest.mark.parametrize("name", ["v1/backupmeta/none.meta"])
def test_inspect_names_what_is_missing(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(command, ["inspect", str(tmp_path / "none" / name)])
    assert done.exit_code != 0
    assert not (tmp_path / "none").exists()
