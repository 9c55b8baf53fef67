"""A log backup becomes the source of a tenant: what is refused and why, what is stored, what the audit log has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support import golden
from support.audit_world import ACME, World
from support.log_bytes import PUT, Log, Part, record, row_key
from tistream.errors import InvalidRequest, Unavailable
from tistream.format.br import messages
from tistream.logbackup.release import Piece, Release, encode
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_meta.decide.model import Store
from tistream_meta.tenants.source_rules import SourceRules

KEY = TenantKey("7", "acme")
URL = "s3://backups/log"
WANTED = {"kind": "log-backup", "url": URL}
SNAPSHOT_TS = 42  # of World.tenant


@dataclass
class Sources:
    """A meta server, and the buckets that it can open."""

    world: World
    buckets: dict[str, Log] = field(default_factory=dict)
    objects: MemoryObjectStore = field(default_factory=MemoryObjectStore)

    def open(self, url: str) -> ObjectStore:
        if url not in self.buckets:
            raise InvalidRequest(f"there is no directory {url}")
        return self.buckets[url].objects

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = self.world.client.request(method, f"{ACME}{path}", json=body)
        return answer.status_code, answer.json()

    def refusal(self, body: Any = None) -> str:
        status, answer = self.ask("POST", "/sources", WANTED if body is None else body)
        assert (status, answer["type"]) == (422, "tistream:source-refused"), answer
        assert self.ask("GET", "/sources")[1]["sources"] == []
        return str(answer["detail"])


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[Sources]:
    world = World(tmp_path)
    one = Sources(world)
    world.app.state.source_rules = SourceRules(world.repository, one.objects, one.open)
    world.tenant("acme")
    log = one.buckets[URL] = Log()
    log.begin(start_version=SNAPSHOT_TS - 1)
    log.flush(Part([(row_key(5, 1), SNAPSHOT_TS + 5, record(PUT, SNAPSHOT_TS + 1, b"a"))]))
    yield one
    world.repository.close()


def test_a_source_is_added_once_listed_and_removed(sources: Sources) -> None:
    before = sources.world.entries()[-1]["seq"]
    status, added = sources.ask("POST", "/sources", WANTED)
    assert (status, added["source_id"], added["snapshot_ts"]) == (201, "log-1", SNAPSHOT_TS)
    assert sources.ask("POST", "/sources", WANTED) == (201, added)
    assert sources.ask("GET", "/sources") == (200, {"sources": [added]})
    assert sources.world.client.get("/upcall/v1/sources").json() == {"sources": [added]}
    status, answer = sources.ask("POST", "/sources", WANTED | {"url": "s3://backups/other"})
    assert (status, answer["type"]) == (409, "tistream:already-differs")
    assert "log-1" in answer["detail"]
    assert sources.ask("DELETE", "/sources/log-9")[0] == 404
    assert sources.ask("DELETE", "/sources/log-1")[0] == 200
    assert sources.ask("GET", "/sources") == (200, {"sources": []})
    assert sources.ask("DELETE", "/sources/log-1")[0] == 404
    assert sources.ask("POST", "/sources", WANTED)[1]["source_id"] == "log-2"
    values = {"kind": "log-backup", "url": URL, "snapshot_kind": "none", "snapshot_url": None}
    assert [
        (one["action"], one["subject"], one["was"], one["became"]) for one in sources.world.entries(after=before)
    ] == [
        ("AddSource", "source log-1 of tenant 7/acme", None, values),
        ("RemoveSource", "source log-1 of tenant 7/acme", values, None),
        ("AddSource", "source log-2 of tenant 7/acme", None, values),
    ]


def test_the_tenant_must_exist(sources: Sources) -> None:
    path = "/v1/clusters/7/tenants/nobody/sources"
    assert sources.world.client.post(path, json=WANTED).status_code == 404
    assert sources.world.client.get(path).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "kafka", "url": URL},
        {"kind": "log-backup"},
        {"kind": "log-backup", "url": URL, "more": 1},
        {"kind": "log-backup", "url": URL, "snapshot": {"kind": "none", "url": "s3://x"}},
        {"kind": "log-backup", "url": "s3://b/ü"},
        {"kind": "log-backup", "url": "s3://b/" + "x" * 1_100},
    ],
)
def test_a_malformed_request_is_refused(sources: Sources, body: Any) -> None:
    assert sources.ask("POST", "/sources", body)[0] == 400


def test_a_full_backup_as_snapshot_is_not_supported_yet(sources: Sources) -> None:
    assert "br-full" in sources.refusal(WANTED | {"snapshot": {"kind": "br-full", "url": "s3://backups/full"}})


def test_the_schema_of_a_full_backup_becomes_the_tenants(sources: Sources) -> None:
    """`schema_of` reads a backup; here one object holds the schema as it is."""
    loaded = golden.load("everything")
    full = sources.buckets["s3://backups/full"] = Log()

    def schema_of(opened: ObjectStore) -> bytes:
        return opened.get("schema")

    rules = sources.world.app.state.source_rules
    sources.world.app.state.source_rules = SourceRules(rules.repository, rules.objects, rules.open_log, schema_of)
    sources.world.server.tenant_rules.create(TenantKey("7", "fresh"))
    wanted = WANTED | {"snapshot": {"kind": "br-full", "url": "s3://backups/full"}}
    path = "/v1/clusters/7/tenants/fresh/sources"

    def ask() -> tuple[int, str]:
        answer = sources.world.client.post(path, json=wanted)
        return answer.status_code, answer.text

    assert ask()[0] == 422
    full.objects.put("schema", b"{")
    assert ask()[0] == 422
    full.objects.put("schema", loaded.schema_snap.data)
    sources.buckets[URL].begin(start_version=loaded.snapshot_ts + 1)
    assert f"after the tenant's snapshot_ts {loaded.snapshot_ts}" in ask()[1]
    key = layout.schema_snap(TenantKey("7", "fresh"))
    assert list(sources.objects.list_after(key)) == [], "nothing is written for a source that is refused"
    sources.buckets[URL].begin(start_version=loaded.snapshot_ts)
    sources.objects.put(key, b"another")
    assert "differs" in ask()[1]
    sources.objects.delete(key)
    assert ask()[0] == 201
    assert sources.objects.get(key) == loaded.schema_snap.data
    assert ask()[0] == 201
    assert sources.world.client.post(path, json=WANTED).status_code == 409
    without = WANTED | {"snapshot": {"kind": "br-full"}}
    assert sources.world.client.post(path, json=without).status_code == 400


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"end_version": 5}, "full backup"),
        ({"cluster_version": "6.5.0"}, "14099"),
        ({"start_version": SNAPSHOT_TS + 1}, "the log begins at 43, after the tenant's snapshot_ts 42"),
    ],
)
def test_a_prefix_that_cannot_be_the_source_is_refused(sources: Sources, changed: dict[str, Any], reason: str) -> None:
    sources.buckets[URL].begin(**{"start_version": 1, **changed})
    assert reason in sources.refusal()


def test_a_place_without_a_log_is_refused(sources: Sources) -> None:
    sources.buckets[URL] = Log(MemoryObjectStore())
    assert "not the prefix of a log backup" in sources.refusal()
    del sources.buckets[URL]
    assert "no directory" in sources.refusal()


def test_metadata_of_an_unknown_form_is_refused(sources: Sources) -> None:
    log = sources.buckets[URL]
    log.objects.put("v1/backupmeta/9.meta", messages.unparse("Metadata", {"files": [{"path": "v1/x.log"}]}))
    assert "version 1" in sources.refusal()
    log.objects.put("v1/backupmeta/9.meta", b"\xff")
    assert "protobuf" in sources.refusal()


def test_a_truncated_log_is_refused(sources: Sources) -> None:
    sources.buckets[URL].objects.put("v1_stream_trancate_safepoint.txt", b"43")
    assert "truncated to 43" in sources.refusal()


def test_a_tenant_without_a_schema_is_refused(sources: Sources) -> None:
    sources.world.server.tenant_rules.create(TenantKey("7", "fresh"))
    answer = sources.world.client.post("/v1/clusters/7/tenants/fresh/sources", json=WANTED)
    assert answer.status_code == 422
    assert "schema_snap" in answer.json()["detail"]


def test_a_tenant_to_which_stores_push_is_refused(sources: Sources) -> None:
    sources.world.server.write(lambda: sources.world.repository.give([Store(KEY, 3)]))
    assert "stores push to the tenant already (3)" in sources.refusal()


def released(sources: Sources, high: int) -> None:
    """An earlier source has released up to `high`."""
    piece = Piece(high, SNAPSHOT_TS, high, 1)
    made = Release(1, "log-1", URL, SNAPSHOT_TS, high, 0, SNAPSHOT_TS, (piece,), (), False)
    sources.objects.put_new(layout.log_release(KEY, 1), encode(made))


def test_a_new_prefix_continues_or_is_a_gap(sources: Sources) -> None:
    """`br log stop`, and a new log: its start_ts says whether changes between the two logs are missing."""
    sources.ask("POST", "/sources", WANTED)
    released(sources, 5_000)
    sources.ask("DELETE", "/sources/log-1")
    other = sources.buckets["s3://backups/new"] = Log()
    other.begin(start_version=5_001)
    wanted = WANTED | {"url": "s3://backups/new"}
    assert "after the released ts of its earlier source 5000" in sources.refusal(wanted)
    other.begin(start_version=5_000)
    assert sources.ask("POST", "/sources", wanted)[0] == 201


def test_the_log_of_another_cluster_does_not_continue(sources: Sources) -> None:
    sources.ask("POST", "/sources", WANTED)
    sources.ask("DELETE", "/sources/log-1")
    sources.buckets[URL].begin(start_version=1, cluster_id=8)
    assert "is of the cluster 8; the tenant's earlier source was of 7" in sources.refusal()


def test_a_store_that_does_not_answer_is_a_503_and_adds_nothing(sources: Sources) -> None:
    def silent(url: str) -> ObjectStore:
        raise Unavailable("no answer")

    sources.world.app.state.source_rules = SourceRules(sources.world.repository, sources.objects, silent)
    assert sources.ask("POST", "/sources", WANTED)[0] == 503
    assert sources.ask("GET", "/sources")[1]["sources"] == []
