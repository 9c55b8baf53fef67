"""A log backup becomes the source of a tenant: what is refused and why, what is stored, what the audit log has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from support import golden
from support.audit_world import ACME, World
from support.backup_files import Backup
from support.log_bytes import PUT, Log, Part, record, row_key
from tistream.errors import InvalidRequest, Unavailable
from tistream.format.br import messages
from tistream.logbackup.release import Release, ReleaseFile, encode
from tistream.model.ids import TenantKey
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_meta.decide.model import Store
from tistream_meta.tenants.source_rules import SourceRules

KEY = TenantKey("7", "acme")
URL, FULL = "s3://backups/log", "s3://backups/full"
WANTED = {"kind": "log-backup", "url": URL}
WITH_FULL = WANTED | {"snapshot": {"kind": "br-full", "url": FULL}}
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

    def use(self, open_log: Callable[[str], ObjectStore]) -> None:
        """Let the meta server open buckets so."""
        backfills = self.world.app.state.backfills
        rules = SourceRules(self.world.repository, self.objects, open_log, backfills.start_all)
        self.world.app.state.source_rules = rules

    def full_backup(self, end_version: int, *, cluster_id: int = 7, version: int = 1) -> MemoryObjectStore:
        """A full backup at FULL with the recorded schema, and no rows."""
        made = Backup(end_version, cluster_id=cluster_id, version=version)
        for database in orjson.loads(golden.load("everything").schema_snap.data)["databases"]:
            for table in database["tables"] or [None]:
                made.schema(database["db_info"], table)
        bucket = MemoryObjectStore()
        for name, body in made.finish().items():
            bucket.put(name, body)
        self.buckets[FULL] = Log(bucket)
        return bucket

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
    one.use(one.open)
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


FRESH = "/v1/clusters/7/tenants/fresh"


@pytest.fixture
def fresh(sources: Sources) -> Callable[[Any], tuple[int, Any]]:
    """Adds a source to a tenant without a schema."""
    sources.world.server.tenant_rules.create(TenantKey("7", "fresh"))

    def add(body: Any) -> tuple[int, Any]:
        answer = sources.world.client.post(f"{FRESH}/sources", json=body)
        return answer.status_code, answer.json()

    return add


Fresh = Callable[[Any], tuple[int, Any]]


@pytest.mark.parametrize("version", [0, 1])
def test_a_full_backup_gives_the_schema_and_begins_the_backfill(sources: Sources, fresh: Fresh, version: int) -> None:
    loaded = golden.load("everything")
    sources.full_backup(SNAPSHOT_TS, version=version)
    assert fresh(WITH_FULL)[0] == 201
    data = sources.objects.get(layout.schema_snap(TenantKey("7", "fresh")))
    found, recorded = (parse_snapshot("k", one) for one in (data, loaded.schema_snap.data))
    assert found.snapshot_ts == SNAPSHOT_TS
    assert sorted(str(one.change) for one in found.records) == sorted(str(one.change) for one in recorded.records)
    for _ in range(2):
        (backfill,) = sources.world.client.get(f"{FRESH}/backfills").json()["backfills"]
        assert (backfill["source"]["url"], backfill["tables"], backfill["state"]) == (FULL, ["*.*"], "running")
        assert fresh(WITH_FULL)[0] == 201, "the same source again starts no second backfill"
    assert fresh(WANTED)[0] == 409
    assert fresh(WANTED | {"snapshot": {"kind": "br-full"}})[0] == 400


def test_a_source_releases_nothing_until_the_rows_of_its_full_backup_are_there(sources: Sources) -> None:
    """Old values come from them. An operator who cancels the backfill does without."""
    sources.full_backup(SNAPSHOT_TS)
    sources.ask("POST", "/sources", WITH_FULL)

    def waits() -> str | None:
        (row,) = sources.world.client.get("/upcall/v1/sources").json()["sources"]
        found: str | None = row["rows_wait"]
        return found

    def end(backfill_id: str, state: str) -> None:
        path = f"/upcall{ACME}/backfills/{backfill_id}/end"
        assert sources.world.client.put(path, json={"state": state}).status_code == 200

    assert "backfill b1 of the tenant's rows is not finished" in (waits() or "")
    end("b1", "failed")
    assert f"run it again with `tistream backfill run --br-full {FULL}`" in (waits() or "")
    again = {"source": {"kind": "br-full", "url": FULL}, "tables": ["shop.*"]}
    rules = sources.world.app.state.backfill_rules
    sources.world.app.state.backfill_rules = replace(rules, open_backup_store=sources.open)
    assert sources.ask("POST", "/backfills", again)[1] == {"backfill_id": "b2"}
    end("b2", "finished")
    assert "failed" in (waits() or ""), "it was of some tables"
    sources.ask("POST", "/backfills", again | {"tables": ["*.*"]})
    assert "b3" in (waits() or "")
    end("b3", "finished")
    assert waits() is None
    sources.ask("DELETE", "/sources/log-1")
    sources.ask("POST", "/sources", WITH_FULL)
    sources.ask("DELETE", "/backfills/b4")
    assert waits() is None


def test_a_backfill_from_another_cluster_is_refused(sources: Sources) -> None:
    sources.full_backup(SNAPSHOT_TS)
    sources.ask("POST", "/sources", WITH_FULL)
    rules = sources.world.app.state.backfill_rules
    sources.world.app.state.backfill_rules = replace(rules, open_backup_store=sources.open)
    order = {"source": {"kind": "br-full", "url": FULL}, "tables": ["shop.*"]}
    for end_version, cluster_id, reason in ((99, 8, "of the cluster 8"), (SNAPSHOT_TS - 1, 7, "before the tenant's")):
        sources.full_backup(end_version, cluster_id=cluster_id)
        status, answer = sources.ask("POST", "/backfills", order)
        assert (status, answer["type"]) == (422, "tistream:source-refused")
        assert reason in answer["detail"]


def test_a_tenant_that_has_begun_gets_the_rows_of_a_newer_backup(sources: Sources) -> None:
    sources.full_backup(SNAPSHOT_TS - 1)
    assert f"as of {SNAPSHOT_TS - 1}, before the tenant's snapshot_ts {SNAPSHOT_TS}" in sources.refusal(WITH_FULL)
    sources.full_backup(SNAPSHOT_TS + 3)
    assert sources.ask("POST", "/sources", WITH_FULL)[0] == 201
    assert len(sources.ask("GET", "/backfills")[1]["backfills"]) == 1
    assert list(sources.objects.list_after(layout.schema_snap(KEY))) == [], "it keeps its own schema"


def test_a_log_that_begins_after_the_full_backup_is_refused(sources: Sources, fresh: Fresh) -> None:
    sources.full_backup(SNAPSHOT_TS)
    sources.buckets[URL].begin(start_version=SNAPSHOT_TS + 1)
    status, answer = fresh(WITH_FULL)
    assert (status, answer["type"]) == (422, "tistream:source-refused")
    assert f"after the tenant's snapshot_ts {SNAPSHOT_TS}" in answer["detail"]
    key = layout.schema_snap(TenantKey("7", "fresh"))
    assert list(sources.objects.list_after(key)) == [], "nothing is written for a source that is refused"
    assert sources.world.client.get(f"{FRESH}/backfills").json()["backfills"] == []
    sources.buckets[URL].begin(start_version=SNAPSHOT_TS)
    sources.objects.put(key, b"another")
    assert "differs" in fresh(WITH_FULL)[1]["detail"]


def _of_another_cluster(sources: Sources) -> None:
    sources.full_backup(SNAPSHOT_TS, cluster_id=8)


def _of_a_log(sources: Sources) -> None:
    bucket = sources.full_backup(SNAPSHOT_TS)
    bucket.put("backupmeta", messages.unparse("BackupMeta", {"cluster_id": 7, "start_version": 5}))


def _encrypted(sources: Sources) -> None:
    sources.full_backup(SNAPSHOT_TS).put("backupmeta", b"\x93 encrypted bytes")


def _of_a_future_version(sources: Sources) -> None:
    bucket = sources.full_backup(SNAPSHOT_TS)
    bucket.put("backupmeta", messages.unparse("BackupMeta", {"cluster_id": 7, "end_version": 42, "version": 9}))


def _outside_of_the_prefix(sources: Sources) -> None:
    bucket = sources.full_backup(SNAPSHOT_TS)
    index = {"meta_files": [{"name": "../other/backupmeta.schema.1", "size": 4}]}
    stated = {"cluster_id": 7, "end_version": 42, "version": 1, "schema_index": index}
    bucket.put("backupmeta", messages.unparse("BackupMeta", stated))


def _cut_off(sources: Sources) -> None:
    bucket = sources.full_backup(SNAPSHOT_TS)
    name = "backupmeta.schema.000000002"
    bucket.put(name, bucket.get(name)[:-1])


def _damaged(sources: Sources) -> None:
    bucket = sources.full_backup(SNAPSHOT_TS)
    name = "backupmeta.schema.000000002"
    body = bucket.get(name)
    bucket.put(name, body[:-1] + bytes([body[-1] ^ 1]))


def _without_its_schemas(sources: Sources) -> None:
    sources.full_backup(SNAPSHOT_TS).delete("backupmeta.schema.000000002")


def _without_backupmeta(sources: Sources) -> None:
    sources.full_backup(SNAPSHOT_TS).delete("backupmeta")


def _of_no_json(sources: Sources) -> None:
    bucket = sources.full_backup(SNAPSHOT_TS)
    stated = {"cluster_id": 7, "end_version": 42, "schemas": [{"db": b"{", "table": b""}]}
    bucket.put("backupmeta", messages.unparse("BackupMeta", stated))


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (_of_another_cluster, "the full backup is of the cluster 8, and the log backup of 7"),
        (_of_a_log, "is the backupmeta of a log backup"),
        (_encrypted, "or it is encrypted"),
        (_of_a_future_version, "backupmeta version 9; this program knows"),
        (_outside_of_the_prefix, "'../other/backupmeta.schema.1' is not a relative path"),
        (_cut_off, "bytes; the backup records"),
        (_damaged, "fails its SHA-256"),
        (_without_its_schemas, "is not complete"),
        (_without_backupmeta, "there is no object `backupmeta` below the URL"),
        (_of_no_json, "malformed DBInfo"),
    ],
)
def test_a_full_backup_that_cannot_be_read_is_refused(
    sources: Sources, fresh: Fresh, prepare: Callable[[Sources], None], reason: str
) -> None:
    prepare(sources)
    status, answer = fresh(WITH_FULL)
    assert (status, answer["type"]) == (422, "tistream:source-refused")
    assert reason in answer["detail"]
    assert sources.world.client.get(f"{FRESH}/sources").json()["sources"] == []
    assert sources.world.client.get(f"{FRESH}/backfills").json()["backfills"] == []
    assert list(sources.objects.list_after("")) == []


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
    sources.world.server.write(lambda: sources.world.repository.assign_stores([Store(KEY, 3)]))
    assert "stores push to the tenant already (3)" in sources.refusal()


def released(sources: Sources, high: int) -> None:
    """An earlier source has released up to `high`."""
    piece = ReleaseFile(high, SNAPSHOT_TS, high, 1)
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

    sources.use(silent)
    assert sources.ask("POST", "/sources", WANTED)[0] == 503
    assert sources.ask("GET", "/sources")[1]["sources"] == []
