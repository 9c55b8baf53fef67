"""The option `direct=true` of the Spark data source, on a platform whose objects are in MinIO."""

# Attack: a signed URL of a row group is used for other bytes, other objects, other methods, and after its time

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import httpx
import pyarrow as pa
import pytest

from support import golden, plain_http, spark
from support.api_world import Platform, platform, start_api
from support.http_world import Server
from support.minio import Minio
from support.minio import running as minio_running
from support.pull import Consumer
from support.waiting import eventually
from support.wire import Fate, Wire, wired
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.pool import writer
from tistream.pool.writer import write_segment
from tistream.wire.audit import SignedRead
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import Accepted
from tistream_api.settings import LimitSettings, SignedSettings
from tistream_client import BadRequest, NoAnswer
from tistream_client.spark import bucket, direct, register
from tistream_client.spark.bucket import bucket_of
from tistream_client.spark.options import parsed
from tistream_client.spark.plan import ChangesPart, Planned, batch_parts, planned, read
from tistream_client.spark.server import server_of
from tistream_client.transport import utc_now
from tistream_sorter.jobs import shard_output

EVERYTHING = golden.load("everything")
TABLES = ("shop.orders", "shop.big", "shop.items", "shop.old1", "types.everything")
TABLE_PATH = "/v1/clusters/7/tenants/acme/databases/shop/tables/big"


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with minio_running(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="module")
def up(minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Each table has row groups of its own, as tables of more than 65,536 rows in a segment have."""
    store = minio.store(minio.new_bucket(), "env/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_output, "write_segment", functools.partial(write_segment, packed_rows=0))
        patch.setattr(writer, "SPLIT_ROWS", 500)  # a table as large as that has several row groups
        with platform(tmp_path_factory.mktemp("world"), 2, store) as one:
            consumer = one.create(EVERYTHING)
            one.put(*EVERYTHING.deliveries)
            consumer.wait_for(EVERYTHING.end_ts)
            yield one


@contextmanager
def served(up: Platform, **settings: Any) -> Iterator[str]:
    """The URL of another API server, with these settings."""
    server: Server = start_api(up.world, **{"signed": SignedSettings(rows_min=1), **settings})
    try:
        consumer = Consumer(server.url, EVERYTHING.tenant)
        eventually(lambda: plain_http.get(f"{server.url}/readyz").status_code == 200)
        consumer.wait_for(EVERYTHING.end_ts)
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="module")
def url(up: Platform) -> Iterator[str]:
    with served(up) as one:
        yield one


@pytest.fixture(scope="module")
def direct_way(minio: Minio, up: Platform) -> Iterator[tuple[Wire, str]]:
    """What counts the requests to the object store and may make them fail, and the URL of a server whose signed URLs
    lead through it."""
    with wired(minio.port) as wire, served(up, signed=SignedSettings(rows_min=1, endpoint=wire.endpoint)) as proxied:
        yield wire, proxied


def of(url: str, table: str, **options: str) -> dict[str, str]:
    end = {"endingTs": str(EVERYTHING.end_ts), "zeroDates": "text"}
    return {"url": url, "cluster": "7", "tenant": "acme", "table": table, **end, **options}


def plan_of(url: str, table: str, **options: str) -> Planned:
    return planned(parsed(of(url, table, **options), utc_now))


def rows_of(plan: Planned) -> list[dict[str, Any]]:
    batches = [batch for part in batch_parts(plan) for batch in read(plan, part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def signed(url: str, **query: str) -> dict[str, Any]:
    """An answer of SignedChanges."""
    given = {"start_ts": str(EVERYTHING.snapshot_ts), "end_ts": str(EVERYTHING.end_ts), **query}
    answer = plain_http.get(f"{url}{TABLE_PATH}/changes/signed", params=given)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ranges(url: str) -> list[dict[str, Any]]:
    found = signed(url)
    assert found["direct"]
    return [group for one in found["objects"] for group in one["groups"]]


@pytest.mark.parametrize("table", TABLES)
def test_the_same_rows_with_and_without(url: str, direct_way: tuple[Wire, str], table: str) -> None:
    wire, proxied = direct_way
    before = wire.made("GET")
    found = rows_of(plan_of(proxied, table, direct="true", partitions="3"))
    assert wire.made("GET") > before
    assert found == rows_of(plan_of(url, table))
    assert found


@pytest.mark.parametrize(
    ("table", "filters"),
    [
        ("shop.big", {"where": "id < 600"}),
        ("shop.big", {"where": "id < 0"}),
        ("shop.big", {"operations": "delete"}),
        ("shop.orders", {"where": "amount > 50 or note is null", "operations": "insert,update"}),
        ("shop.items", {"operations": "update,delete"}),
    ],
)
def test_the_same_filtered_rows_with_and_without(
    url: str, direct_way: tuple[Wire, str], table: str, filters: dict[str, str]
) -> None:
    wire, proxied = direct_way
    begun = wire.made("GET")
    found = rows_of(plan_of(proxied, table, direct="true", partitions="3", **filters))
    fetched = wire.made("GET") - begun
    every = rows_of(plan_of(proxied, table, direct="true", partitions="3"))
    again = wire.made("GET") - begun - fetched
    assert again >= fetched
    if table == "shop.big":
        assert again > 2 * fetched, "row groups without such rows are not fetched"
    assert found == rows_of(plan_of(url, table, **filters))
    assert len(found) < len(every)


@pytest.mark.parametrize(
    ("table", "where", "text"),
    [
        ("shop.orders", "amout > 1", r"no column 'amout' \(did you mean amount\?\)"),
        ("shop.orders", "amount >", "cannot be parsed"),
        ("shop.ddl1", "c = 7", "'ddl1' has no column 'c'"),  # at first: it is added later
    ],
)
def test_a_filter_is_refused_as_by_the_server(url: str, table: str, where: str, text: str) -> None:
    end = added(url) if table == "shop.ddl1" else EVERYTHING.end_ts
    details = []
    for way in ("true", "false"):
        with pytest.raises(BadRequest, match=text) as refused:
            rows_of(plan_of(url, table, direct=way, where=where, endingTs=str(end), partitions="1"))
        details.append(refused.value.detail)
    assert details[0] == details[1]


def added(url: str) -> int:
    """The ts at which table shop.ddl1 gets its column c."""
    path = "/v1/clusters/7/tenants/acme/databases/shop/tables/ddl1/changes"
    given = {"start_ts": str(EVERYTHING.snapshot_ts), "end_ts": str(EVERYTHING.end_ts), "events": "ddl"}
    lines = [json.loads(line) for line in plain_http.get(f"{url}{path}", params=given).text.splitlines()]
    return next(int(line["commit_ts"]) for line in lines if "add column c" in line.get("query", ""))


def audited(url: str, after: int) -> list[dict[str, Any]]:
    """The entries of the audit log about signed URLs."""
    entries = plain_http.get(f"{url}/v1/audit", params={"after": str(after), "limit": "1000"}).json()["entries"]
    return [one for one in entries if one["action"] == "SignedChanges"]


def newest(url: str) -> int:
    found: int = plain_http.get(f"{url}/v1/audit").json()["newest_seq"]
    return found


def test_each_answer_with_urls_is_in_the_audit_log_without_them(url: str) -> None:
    before = newest(url)
    answer = signed(url)
    [entry] = audited(url, before)
    groups = [group for one in answer["objects"] for group in one["groups"]]
    assert (entry["actor"], entry["address"], entry["subject"]) == ("everybody", "127.0.0.1", "tenant 7/acme")
    assert (entry["cluster_id"], entry["tenant_id"], entry["was"]) == ("7", "acme", {"signed": None})
    assert entry["became"]["signed"] == {
        "database": "shop",
        "table": "big",
        "start_ts": answer["start_ts"],
        "end_ts": answer["end_ts"],
        "row_groups": len(groups),
        "rows": sum(group["rows"] for group in groups),
        "bytes": sum(group["length"] for group in groups),
        "seconds": answer["seconds"],
    }
    text = json.dumps(entry)
    assert not [word for word in ("://", "X-Amz", *(group["url"] for group in groups)) if word in text]


def test_what_gives_no_urls_leaves_no_entry(up: Platform, url: str) -> None:
    before = newest(url)
    with served(up, signed=SignedSettings(rows_min=1 << 30)) as pulling:
        assert not signed(pulling)["direct"]
    assert signed(url, start_ts=str(EVERYTHING.end_ts))["direct"], "of an empty range"
    assert audited(url, before) == []


def test_without_an_entry_there_are_no_urls(up: Platform, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(self: MetaClient, tenant: TenantKey, read: SignedRead) -> Accepted:
        raise Unavailable("no meta server answers")

    monkeypatch.setattr(MetaClient, "record_signed", unanswered)
    with served(up) as one:
        answer = signed(one)
        assert (answer["direct"], answer["objects"]) == (False, [])
        assert rows_of(plan_of(one, "shop.big", direct="true")) == rows_of(plan_of(url, "shop.big"))


def test_urls_that_are_refused_and_lost_lose_and_repeat_nothing(url: str, direct_way: tuple[Wire, str]) -> None:
    wire, proxied = direct_way
    plan, before = plan_of(proxied, "shop.big", direct="true"), wire.made("GET")
    wire.befall("GET", Fate.ANSWERED, Fate.REFUSED, Fate.ANSWERED, Fate.CUT, Fate.SLOWED, Fate.LOST)
    found = rows_of(plan)
    assert wire.made("GET") - before > 6
    assert found == rows_of(plan_of(url, "shop.big"))


def test_what_a_store_always_refuses_is_pulled(url: str, minio: Minio, up: Platform) -> None:
    with wired(minio.port) as wire, served(up, signed=SignedSettings(rows_min=1, endpoint=wire.endpoint)) as proxied:
        plan = plan_of(proxied, "shop.big", direct="true", partitions="1")
        wire.befall("GET", *[Fate.REFUSED] * 100)
        with pytest.warns(UserWarning, match=r"refuses URLs .*SIGNED__ENDPOINT, or read without direct"):
            found = rows_of(plan)
        assert wire.made("GET") == 2
    assert found == rows_of(plan_of(url, "shop.big"))


def test_a_store_that_cannot_be_reached_ends_the_read(up: Platform) -> None:
    with served(up, signed=SignedSettings(rows_min=1, endpoint="http://127.0.0.1:9")) as away:
        plan = plan_of(away, "shop.big", direct="true", retryFor="1")
        with pytest.raises(NoAnswer, match=r"object store at 127\.0\.0\.1:9 gives no rows.* from the API server"):
            rows_of(plan)


def test_some_columns_are_read_and_no_signature_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "httpx")
    found = rows_of(plan_of(url, "shop.orders", direct="true", columns="note,id"))
    assert found == rows_of(plan_of(url, "shop.orders", columns="note,id"))
    assert ".parquet" in caplog.text
    assert "X-Amz" not in caplog.text


def test_few_rows_and_other_tables_rows_are_pulled(up: Platform, url: str) -> None:
    with served(up, signed=SignedSettings(rows_min=1 << 30)) as pulling:
        answer = signed(pulling)
        assert (answer["direct"], answer["objects"]) == (False, [])
        assert rows_of(plan_of(pulling, "shop.big", direct="true")) == rows_of(plan_of(url, "shop.big"))


def test_a_url_is_good_for_its_range_alone(url: str) -> None:
    found = ranges(url)
    one, other = found[0], found[1]
    start, end = one["start"], one["start"] + one["length"] - 1
    own = f"bytes={start}-{end}"
    foreign = f"bytes={other['start']}-{other['start'] + other['length'] - 1}"

    def answered(method: str, at: str, said: str | None) -> tuple[int, int]:
        headers = {} if said is None else {"range": said}
        answer = httpx.request(method, at, headers=headers, trust_env=False, content=b"" if method == "PUT" else None)
        return answer.status_code, len(answer.content)

    assert answered("GET", one["url"], own) == (206, one["length"])
    path, _, query = one["url"].partition("?")
    longer = one["url"].replace("X-Amz-Expires=300", "X-Amz-Expires=3000")
    assert longer != one["url"]
    wider = (f"bytes={start}-{end + 1}", f"bytes={start - 1}-{end}", "bytes=0-", f"bytes={start}-", f"{own}, 0-3")
    tried = [
        *[("GET", one["url"], said) for said in (None, *wider, foreign)],
        ("GET", f"{path}x?{query}", own),
        ("GET", f"{path.rpartition('/')[0]}?{query}", own),
        ("GET", f"{one['url']}&partNumber=1", own),
        ("GET", longer, own),
        *[(method, one["url"], own) for method in ("HEAD", "PUT", "DELETE", "POST")],
    ]
    assert [call for call in tried if answered(*call)[0] not in (400, 403, 404)] == []
    assert answered("GET", one["url"], own) == (206, one["length"])


def test_a_url_expires(up: Platform) -> None:
    with served(up, signed=SignedSettings(rows_min=1, seconds=1)) as brief:
        group = ranges(brief)[0]
        said = {"range": f"bytes={group['start']}-{group['start'] + group['length'] - 1}"}
        eventually(lambda: b"expired" in httpx.get(group["url"], headers=said, trust_env=False).content)


def test_a_reader_asks_again_once_a_url_is_refused(up: Platform, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second URL does not fit its signature: the store refuses it as one that has expired."""
    fetched = iter(range(1_000))
    whole = bucket.Bucket.fetch

    def fetch(self: bucket.Bucket, wanted: Any) -> bytes:
        if next(fetched) == 1:
            wanted = wanted.model_copy(update={"url": wanted.url.replace("X-Amz-Expires=300", "X-Amz-Expires=1")})
        return whole(self, wanted)

    monkeypatch.setattr(bucket.Bucket, "fetch", fetch)
    assert rows_of(plan_of(url, "shop.big", direct="true")) == rows_of(plan_of(url, "shop.big"))
    assert next(fetched) > 5


def test_bytes_of_signed_ranges_count_as_served(url: str) -> None:
    def served_bytes() -> float:
        lines = plain_http.get(f"{url}/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if 'bytes_total{call="SignedChanges"' in line)

    before = served_bytes()
    size = sum(group["length"] for group in ranges(url))
    assert served_bytes() - before == size


def test_above_the_tenants_rate_rows_are_pulled(up: Platform, url: str) -> None:
    """Also by several tasks at once, of which none fails."""
    expected = rows_of(plan_of(url, "shop.orders"))
    stamps = sorted({row["commit_ts"] for row in expected})
    with served(up, limits=LimitSettings(served_bytes_per_second=1)) as slow:
        first, second = signed(slow), signed(slow)
        assert (first["direct"], second["direct"], second["objects"]) == (True, False, [])
    with served(up, limits=LimitSettings(served_bytes_per_second=20_000)) as limited:
        plan = plan_of(limited, "shop.orders", direct="true", retryFor="1")
        cuts = [plan.low, *stamps[: -1 : max(1, len(stamps) // 8)], plan.high]
        with ThreadPoolExecutor(8) as tasks:
            found = list(tasks.map(lambda pair: list(read(plan, ChangesPart(*pair))), pairwise(cuts)))
    batches = [batch for one in found for batch in one]
    assert len(found) > 4
    assert pa.Table.from_batches(batches).to_pylist() == expected


def test_servers_without_signed_ranges_say_so(up: Platform) -> None:
    with served(up, signed=SignedSettings(seconds=0)) as without:
        plan = plan_of(without, "shop.big", direct="true")
        with pytest.raises(BadRequest, match="SIGNED__SECONDS is 0: read without direct"):
            rows_of(plan)


def test_connections_to_the_store_trust_the_given_authority(url: str) -> None:
    with server_of(parsed(of(url, "shop.big", direct="true"), utc_now)) as server, bucket_of(server) as one:
        assert one.retry_for == 60
    direct.check_decoder()


@pytest.mark.spark
def test_spark_reads_directly(url: str) -> None:
    with spark.local_session(spark.CLIENT) as session:
        register(session)
        reader = session.read.format("tistream")
        found, expected = (
            reader.options(**of(url, "shop.big", partitions="2", direct=way)).load().select("commit_ts", "op", "key.id")
            for way in ("true", "false")
        )
        rows = sorted(map(tuple, found.collect()))
        assert rows == sorted(map(tuple, expected.collect()))
        assert len(rows) > 8_000
