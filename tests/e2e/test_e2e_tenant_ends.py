"""A tenant is paused, goes on, is deleted with all that it has, and its name is used again; another notices nothing."""

from __future__ import annotations

import subprocess

from support import golden, plain_http
from support.command import patient_command as run
from support.compare import content, shown, tenant_differences
from support.golden import GoldenSet
from support.platform import Platform
from support.pull import Consumer
from support.pulled import Pulled
from support.waiting import eventually
from tistream.storage import layout
from tistream.storage.open import open_objects


def command(up: Platform, loaded: GoldenSet, *words: str) -> subprocess.CompletedProcess[str]:
    """`tistream tenant …` of that tenant."""
    key = loaded.tenant
    return run("tenant", *words, "--cluster", key.cluster_id, "--tenant", key.tenant_id, "--url", up.url)


def names(up: Platform, loaded: GoldenSet) -> list[str]:
    """What `tistream tenant list` says of it."""
    listed = run("tenant", "list", "--cluster", loaded.tenant.cluster_id, "--url", up.url)
    assert listed.returncode == 0, listed.stderr
    return [line for line in listed.stdout.splitlines() if line.split()[0] == loaded.tenant.tenant_id]


def objects(up: Platform, loaded: GoldenSet) -> list[str]:
    """Everything in object storage that is the tenant's."""
    every = open_objects(f"file://{up.objects}").list_after("")
    return [info.key for info in every if layout.tenant_of(info.key) == loaded.tenant]


def is_read(up: Platform, loaded: GoldenSet) -> bool:
    """Whether the dispatcher says that it reads a store of the tenant."""
    of = {"cluster_id": loaded.tenant.cluster_id, "tenant_id": loaded.tenant.tenant_id}
    url = f"http://127.0.0.1:{up.ports()['dispatcher']}/v1/stores"
    return bool(plain_http.get(url, params=of, headers=up.service_headers()).json()["stores"])


def begun(up: Platform, loaded: GoldenSet) -> Consumer:
    """A new tenant, half of whose files are pushed; what they say is served."""
    golden.put(up.objects, loaded.schema_snap)
    consumer = up.create_for(loaded)
    golden.push(loaded.files[: len(loaded.files) // 2], up.objects)
    eventually(lambda: int(consumer.status()["resolved_ts"]) > loaded.snapshot_ts)
    return consumer


def test_a_tenant_is_paused_deleted_and_registered_anew(up: Platform, whole: Pulled) -> None:
    loaded = golden.load_as("large", "9", "ends")
    consumer = begun(up, loaded)
    eventually(lambda: is_read(up, loaded))

    assert "is paused" in command(up, loaded, "pause").stdout
    eventually(lambda: "the tenant is paused" in (consumer.status()["held_by"] or {}).get("reason", ""))
    assert names(up, loaded) == ["ends  paused"]
    eventually(lambda: not is_read(up, loaded))  # the dispatcher, too, learns of it from the meta server
    golden.push(loaded.files[len(loaded.files) // 2 :], up.objects, url=up.url)
    begun(up, golden.load_as("large", "9", "beside"))  # what was pushed later has come through
    at = int(consumer.status()["resolved_ts"])
    before = consumer.pull(until_ts=at, start_ts=loaded.snapshot_ts, limit=100_000)
    assert before, "what is there is served"
    assert int(consumer.status()["resolved_ts"]) < loaded.end_ts
    assert "is resumed" in command(up, loaded, "resume").stdout
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)

    wrong = command(up, loaded, "delete", "--confirm", "end", "--grace", "0")
    assert wrong.returncode == 1
    assert "say 'ends'" in wrong.stderr
    assert "will be deleted at" in command(up, loaded, "delete", "--confirm", "ends").stdout
    # the API learns of it from the meta server, as it does of a pause
    eventually(lambda: "will be deleted at" in (consumer.status()["held_by"] or {}).get("reason", ""))
    assert "is kept and is resumed" in command(up, loaded, "keep").stdout
    assert objects(up, loaded)
    assert command(up, loaded, "delete", "--confirm", "ends", "--grace", "0").returncode == 0
    tenants = f"{up.url}/v1/clusters/{loaded.tenant.cluster_id}/tenants"
    eventually(lambda: f'"{loaded.tenant.tenant_id}"' not in plain_http.get(tenants).text, pause_s=0.5)
    assert names(up, loaded) == []
    assert objects(up, loaded) == []
    eventually(lambda: command(up, loaded, "status").returncode == 1, pause_s=0.5)

    golden.put(up.objects, loaded.schema_snap)
    again = up.create_for(loaded)
    golden.push(loaded.files, up.objects)
    events = again.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    other = whole.consumer.pull(until_ts=whole.golden.end_ts, start_ts=whole.golden.snapshot_ts, limit=200_000)
    assert content(other) == whole.all, "nothing of another tenant"
