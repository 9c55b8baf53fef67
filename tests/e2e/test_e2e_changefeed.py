"""A changefeed into a real Kafka, by the API alone: its worker is killed, and each event is there once and in order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support import browser, golden, platform
from support.browser import CONTRASTS
from support.command import patient_command
from support.kafka import PASSWORD, USER, CommittedReader, committed, kafka, with_login
from support.platform import Platform, free_port
from support.pull import Consumer
from support.pull_world import golden_world
from support.waiting import eventually
from tistream.read.cursor import Position, Scope
from tistream.read.scan import Scan
from tistream_changefeed.core.segments import Segment, segments
from tistream_changefeed.rows.split import Splitting
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.sinks.kafka.topics import Topics
from tistream_cli.platform.local_kafka import LocalKafka

TOPIC, PARTITIONS = "changes", 3
MADE = (200, 201)  # the first one, if the API has lost the answer of the meta server and was asked again
SASL_PORT = free_port()
LAST = 6  # files, two of each store
# Small windows: many transactions, so that a kill meets one under way
SMALL = {"TISTREAM_CHANGEFEED__WINDOW_BYTES": "4096", "TISTREAM_CHANGEFEED__CHUNK_ROWS": "256"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    plain, controller = free_port(), free_port()
    with kafka(tmp_path_factory.mktemp("kafka"), with_login(plain, controller, SASL_PORT), (plain, controller)) as one:
        yield one


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    options = ("--changefeeds", "1")
    with platform.running(tmp_path_factory.mktemp("feed"), options=options, environ=SMALL, killed=True) as started:
        yield started


class Feeds:
    """The changefeeds of a tenant, over HTTP."""

    def __init__(self, consumer: Consumer) -> None:
        self._http, self._base = consumer.client, f"{consumer.base}/changefeeds"

    def create(self, **body: str) -> tuple[int, dict[str, Any]]:
        answer = self._http.post(self._base, json=body)
        return answer.status_code, answer.json()

    def created(self, **body: str) -> bool:
        """Create a feed; False while the tenant cannot be read yet."""
        status, answer = self.create(**body)
        assert status in (200, 201, 503), answer
        return status != 503

    def get(self, feed_id: str) -> dict[str, Any]:
        answer = self._http.get(f"{self._base}/{feed_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def turn(self, feed_id: str, call: str) -> dict[str, Any]:
        answer = self._http.post(f"{self._base}/{feed_id}/{call}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def look(self, feed_id: str, what: str) -> dict[str, Any]:
        """The answer of `…/events`, `…/tables` or `…/lag`."""
        answer = self._http.get(f"{self._base}/{feed_id}/{what}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def update(self, feed_id: str, **body: Any) -> tuple[int, dict[str, Any]]:
        answer = self._http.put(f"{self._base}/{feed_id}", json=body)
        return answer.status_code, answer.json()

    def resume_at(self, feed_id: str, checkpoint_ts: int) -> tuple[int, dict[str, Any]]:
        answer = self._http.post(f"{self._base}/{feed_id}/resume", json={"checkpoint_ts": str(checkpoint_ts)})
        return answer.status_code, answer.json()

    def remove(self, feed_id: str) -> int:
        return self._http.delete(f"{self._base}/{feed_id}").status_code


def uri(broker: LocalKafka, topic: str = TOPIC) -> str:
    return f"kafka://{broker.address}/{topic}?protocol=open-protocol&partition-num={PARTITIONS}&max-batch-size=1"


@cache
def expected(sink_uri: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """What each partition must have without resolved messages, from one read of the same rows in this process."""
    feed = parsed(sink_uri, {}).pipeline()
    out: dict[int, list[tuple[bytes | None, bytes | None]]] = {number: [] for number in range(PARTITIONS)}
    for segment in whole(feed.splitting):
        encoded = feed.rows(segment.rows, lambda _: PARTITIONS)
        sent = list(encoded.framed(encoded.messages).each())
        if segment.ddl is not None:
            sent += feed.ddl(segment.ddl, golden_world("everything").source.table, lambda _: PARTITIONS)
        for one in sent:
            out[one.partition].append((one.key, one.value))
    return out


def whole(moving: Splitting | None) -> Iterator[Segment]:
    """The golden set, read in this process."""
    world = golden_world("everything")
    at = Position(world.snapshot_ts)
    scan = Scan(world.source, Scope(world.tenant), at, world.end_ts, world.budget, numbered=True, moving=moving)
    for batch in scan.batches():
        for segment in segments(batch.events, at, batch.through):
            yield segment
            at = segment.rows_end


def is_resolved(value: bytes | None) -> bool:
    """Whether the value of an open-protocol message is that of a resolved message."""
    return value == bytes(8)


@pytest.fixture(scope="module")
def fed(up: Platform, broker: LocalKafka) -> Iterator[tuple[Consumer, CommittedReader]]:
    """A tenant whose files arrive while a feed runs and its worker is killed, and who reads the feed's topic all the
    time."""
    rng = Random(5)
    loaded = golden.load("everything")
    golden.put(up.objects, loaded.schema_snap)
    consumer = up.create_for(loaded)
    feeds = Feeds(consumer)
    body = {"changefeed_id": "all", "sink_uri": uri(broker), "start_ts": str(loaded.snapshot_ts)}
    body |= {"end_ts": str(loaded.end_ts)}
    eventually(lambda: feeds.created(**body))
    assert feeds.create(**body)[0] == 200, "the same again"
    assert feeds.create(**{**body, "end_ts": str(loaded.end_ts - 1)})[0] == 409
    total = sum(map(len, expected(uri(broker)).values()))
    reader = CommittedReader(broker.address, TOPIC)
    kills = [int(total * share) for share in (0.2 + rng.random() / 10, 0.6 + rng.random() / 10)]
    # Without its last files a feed does not finish, however long a kill takes.
    pushing, last = iter(loaded.files[:-LAST]), loaded.files[-LAST:]

    def push(count: int) -> None:
        for _, delivery in zip(range(count), pushing, strict=False):
            golden.put(up.objects, delivery)
            golden.announce(up.url, delivery)

    def seen() -> int:
        reader.read(0.2)
        return sum(not is_resolved(value) for messages in reader.seen.values() for *_, value in messages)

    for number, kill in enumerate(kills, 1):
        eventually(lambda number=number: feeds.get("all")["epoch"] >= number)  # each kill meets another holder
        while seen() < kill:
            push(2)
        eventually(lambda: up.strike("changefeed"))
    push(len(loaded.files))
    golden.push(last, up.objects, url=up.url)
    eventually(lambda: feeds.get("all")["state"] == "finished", pause_s=0.5)
    reader.read_all()
    yield consumer, reader
    reader.close()


@pytest.fixture
def pushed(fed: tuple[Consumer, CommittedReader]) -> Consumer:
    """A tenant with the whole set."""
    return fed[0]


def test_each_event_is_in_kafka_once_and_in_order_though_the_worker_is_killed(
    fed: tuple[Consumer, CommittedReader], broker: LocalKafka
) -> None:
    loaded, (consumer, reader) = golden.load("everything"), fed
    wanted = expected(uri(broker))
    for number, messages in reader.seen.items():
        rows = [(key, value) for _, key, value in messages if not is_resolved(value)]
        assert rows == wanted[number], number
        assert is_resolved(messages[-1][2])
    assert reader.seen == committed(broker.address, TOPIC), "who was there all the time has what a new reader finds"
    feeds = Feeds(consumer)
    eventually(lambda: feeds.get("all")["held_by"] == [])
    found = feeds.get("all")
    assert (found["checkpoint_ts"], found["error"]) == (str(loaded.end_ts), None)
    assert found["epoch"] >= 3


def test_the_read_in_this_process_has_the_events_of_a_pull(pushed: Consumer) -> None:
    loaded = golden.load("everything")
    events = pushed.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=200_000)
    counted: Counter[tuple[int, str]] = Counter()
    for segment in whole(None):
        counted.update((int(ts), "row") for ts in segment.rows.commit_ts)
        if segment.ddl is not None:
            counted[segment.ddl.commit_ts, "ddl"] += 1
    assert Counter((int(event["commit_ts"]), event["type"]) for event in events if "commit_ts" in event) == counted


def test_a_feed_is_paused_resumed_and_removed(pushed: Consumer, broker: LocalKafka) -> None:
    loaded = golden.load("everything")
    feeds = Feeds(pushed)
    body = {"changefeed_id": "other", "sink_uri": uri(broker, "other"), "start_ts": str(loaded.snapshot_ts)}
    assert feeds.create(**body)[0] in MADE
    eventually(lambda: int(feeds.get("other")["checkpoint_ts"]) >= loaded.end_ts, pause_s=0.5)
    assert feeds.turn("other", "pause")["state"] == "paused"
    assert feeds.turn("other", "pause")["state"] == "paused"
    ticdc, of = f"{pushed.url}/api/v2/changefeeds", {"namespace": pushed.tenant.tenant_id}
    listed = pushed.client.get(ticdc, params=of).json()["items"]
    assert ("other", "stopped") in [(one["id"], one["state"]) for one in listed]
    normal = pushed.client.get(ticdc, params={**of, "state": "normal"}).json()["items"]
    assert "other" not in [one["id"] for one in normal]
    alone = pushed.client.get(f"{ticdc}/other", params=of).json()
    assert (alone["checkpoint_ts"], alone["sink_uri"]) == (
        int(feeds.get("other")["checkpoint_ts"]),
        uri(broker, "other"),
    )
    assert feeds.turn("other", "resume")["state"] == "running"
    eventually(lambda: feeds.get("other")["node_id"] is not None)
    assert feeds.remove("other") == 200
    assert feeds.remove("other") == 404


def sample(text: str, name: str, **labels: str) -> float | None:
    """The value of a metric in a scrape."""
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.name == name and labels.items() <= one.labels.items():
                return one.value
    return None


def test_operators_see_a_feed_in_metrics_the_command_and_the_console_which_creates_pauses_and_resumes_it(
    up: Platform, pushed: Consumer, broker: LocalKafka
) -> None:
    feeds, tenant = Feeds(pushed), pushed.tenant
    with browser.chromium() as chromium, browser.sight(chromium, up.url) as seen:
        page = seen.open(f"#/t/{tenant.cluster_id}/{tenant.tenant_id}/feeds")
        page.get_by_role("button", name="New changefeed").click()
        page.fill("#feed-id", "shown")
        page.fill("#feed-sink", uri(broker, "shown").replace("kafka:", "oracle:"))
        page.get_by_role("button", name="Check").click()
        page.wait_for_selector("dialog .trouble")  # refused, and the question stays
        page.fill("#feed-sink", uri(broker, "shown"))
        page.fill("#feed-start", str(golden.load("everything").snapshot_ts))
        page.fill("#feed-config", "filter.rules = [")
        page.get_by_role("button", name="Check").click()
        page.wait_for_selector("dialog .trouble:has-text('config_toml is not TOML')")
        page.fill("#feed-config", '[filter]\nrules = ["shop.*"]')
        page.get_by_role("button", name="Check").click()
        page.wait_for_selector(f"dialog li:has-text('topic shown: {PARTITIONS} partitions')")
        page.get_by_role("button", name="Create", exact=True).click()
        row = page.locator("tr", has=page.get_by_role("cell", name="shown", exact=True))
        row.wait_for()
        assert feeds.get("shown")["config"]["filter"]["rules"] == ["shop.*"]
        end_ts = golden.load("everything").end_ts
        eventually(lambda: int(feeds.get("shown")["checkpoint_ts"]) >= end_ts, pause_s=0.5)  # nothing follows
        eventually(lambda: row.get_by_role("cell", name=f"{feeds.get('shown')['rows']:,}", exact=True).count())
        eventually(lambda: row.locator(".pill").inner_text() == "running")
        browser.picture(page, "feeds")
        browser.settled(page)
        assert browser.answered(page, CONTRASTS) == []
        page.get_by_role("button", name="Pause shown").click()
        page.get_by_role("button", name="Cancel").click()
        assert feeds.get("shown")["state"] == "running"
        page.get_by_role("button", name="Pause shown").click()
        page.locator("dialog[open]").get_by_role("button", name="Pause", exact=True).click()
        page.wait_for_selector("tr:has-text('shown') .pill-paused")
        assert feeds.get("shown")["state"] == "paused"
        page.get_by_role("button", name="Resume shown").click()
        page.locator("dialog[open]").get_by_role("button", name="Resume", exact=True).click()
        page.wait_for_selector("tr:has-text('shown') .pill-running")
        page.get_by_role("button", name="History of shown").click()
        page.wait_for_selector("table[aria-label='History'] tbody tr")
        told = [one["what"] for one in reversed(feeds.look("shown", "events")["events"])]
        shown = page.locator("table[aria-label='History'] tbody tr td:nth-child(2)").all_inner_texts()
        assert [what for what in shown[::-1] if what in ("created", "paused", "resumed")] == [
            what for what in told if what in ("created", "paused", "resumed")
        ]
        assert {"paused", "resumed"} <= set(shown)
    [worker] = [
        one for one in up.patient_http().get(f"{up.url}/v1/nodes").json()["nodes"] if one["role"] == "changefeed"
    ]
    labels = {"cluster": tenant.cluster_id, "tenant": tenant.tenant_id, "feed": "shown", "shard": "0"}

    def scraped(name: str, **more: str) -> float | None:
        text = up.patient_http().get(f"{worker['url']}/metrics", headers=up.service_headers()).text
        return sample(text, f"tistream_changefeed_{name}", **labels, **more)

    eventually(lambda: scraped("rows_total") == feeds.get("shown")["rows"])
    eventually(lambda: (scraped("transactions_total") or 0) > 0)  # of the holder after the pause
    eventually(lambda: (scraped("lag_seconds") or 0) < 60)
    of = ["--url", up.url, "--cluster", tenant.cluster_id, "--tenant", tenant.tenant_id]
    told = patient_command("tenant", "status", *of)
    assert told.returncode == 0, told.stderr
    states = {one["changefeed_id"]: one["state"] for one in json.loads(told.stdout)["changefeeds"]}
    assert states["shown"] == "running"
    assert feeds.remove("shown") == 200
    eventually(lambda: scraped("rows_total") is None)


def test_a_feed_is_changed_and_sends_again_from_a_ts(pushed: Consumer, broker: LocalKafka) -> None:
    loaded = golden.load("everything")
    feeds, begin, end = Feeds(pushed), str(loaded.snapshot_ts), str(loaded.end_ts)
    body = {"changefeed_id": "changed", "sink_uri": uri(broker, "changed"), "start_ts": begin, "end_ts": end}
    going = {"changefeed_id": "going", "sink_uri": uri(broker, "going"), "start_ts": begin}  # without an end: it runs
    assert feeds.create(**going)[0] in MADE
    status, problem = feeds.update("going", config={"filter": {"rules": ["shop.*"]}})
    assert (status, "pause it, update it" in problem["detail"]) == (409, True)
    assert feeds.remove("going") == 200
    assert feeds.create(**body)[0] in MADE
    eventually(lambda: feeds.get("changed")["state"] == "finished", pause_s=0.5)
    eventually(lambda: feeds.look("changed", "lag")["held_by"] == [])
    for again in (body, {name: value for name, value in body.items() if name != "start_ts"}):
        assert feeds.create(**again)[0] == 200, "the same again, though its end is past"
    lag = feeds.look("changed", "lag")
    assert (lag["checkpoint_ts"], lag["lag_seconds"]) == (end, 0)
    tables = feeds.look("changed", "tables")
    assert tables["count"] == len(tables["tables"]) > 5
    kept = tables["tables"][0]
    rule = f"{kept['database']}.{kept['table']}"
    before = {number: len(seen) for number, seen in committed(broker.address, "changed").items()}
    for change, text in (
        ({"config": {"filter": {"ruels": []}}}, "is unknown"),
        ({}, "none of sink_uri, end_ts and config"),
        ({"sink_uri": f"{uri(broker, 'changed')}&partition-num=4"}, "is there twice"),
    ):
        status, problem = feeds.update("changed", **change)
        assert (status, text in problem["detail"]) == (400, True), problem
    assert feeds.update("changed", config={"filter": {"rules": [rule]}})[0] == 200
    assert [one["table"] for one in feeds.look("changed", "tables")["tables"]] == [kept["table"]]
    for ts, status in ((1, 410), (1 << 62, 400), (loaded.end_ts, 400)):
        assert feeds.resume_at("changed", ts)[0] == status
    assert feeds.resume_at("changed", loaded.snapshot_ts)[0] == 200
    eventually(lambda: feeds.get("changed")["state"] == "finished", pause_s=0.5)
    events = feeds.look("changed", "events")["events"]
    told = [one["what"] for one in events]
    named = ["finished", "applied", "resumed", "updated", "finished", "created"]
    assert [what for what in told if what != "held"] == named
    # A worker whose heartbeats come late loses the feed, and holds it again: no more is said of how often.
    assert "held" in told[told.index("applied") : told.index("resumed")]
    assert "held" in told[told.index("updated") :]
    applied = events[told.index("applied")]
    assert (applied["from_ts"], applied["after_ts"], applied["revision"]) == (end, begin, 2)
    again = [
        value
        for number, seen in committed(broker.address, "changed").items()
        for _, key, value in seen[before[number] :]
        if not is_resolved(value) and f'"tbl":"{kept["table"]}"'.encode() not in (key or b"")
    ]
    assert all(b"create database" in one for one in again), "only the one table is sent again, and its database"
    sent = sum(len(seen) for seen in committed(broker.address, "changed").values()) - sum(before.values())
    assert sent > 0


def answers_of(feeds: Feeds, body: dict[str, Any], text: str) -> tuple[int, dict[str, Any]]:
    """The answer to a creation; of 503s, one that says `text`: others say that a service did not answer in its time."""
    answers = []

    def answered() -> bool:
        answers.append(feeds.create(**body))
        status, problem = answers[-1]
        return status != 503 or text in problem["detail"]

    eventually(answered)
    return answers[-1]


UNFIT = {"matcher": ["shop.orders"], "partition": "index-value", "index": "nope"}


def test_what_cannot_run_is_refused_at_creation_with_the_way_out(
    up: Platform, pushed: Consumer, broker: LocalKafka
) -> None:
    loaded = golden.load("everything")
    feeds = Feeds(Consumer(pushed.url, pushed.tenant))  # which comes again for no 503
    Topics(KafkaTarget((broker.address,), TOPIC, partition_num=PARTITIONS), "test").partitions(TOPIC)
    good = {"changefeed_id": "bad", "sink_uri": uri(broker), "start_ts": str(loaded.snapshot_ts)}
    for change, status, text in (
        ({"sink_uri": uri(broker).replace("partition-num=3", "partition-num=9")}, 400, "fewer than partition-num=9"),
        ({"sink_uri": f"kafka://10.1.2.3:9092/{TOPIC}"}, 422, "TISTREAM_CHANGEFEED__SINK_HOSTS"),
        ({"sink_uri": f"kafka://{USER}:hunter3@127.0.0.1:{SASL_PORT}/{TOPIC}"}, 400, "the broker refuses sasl-user"),
        ({"config": {"filter": {"rules": ["nothing.*"]}}}, 400, "allow-no-tables = true"),
        ({"sink_uri": f"pulsar://127.0.0.1:6650/{TOPIC}"}, 400, "other sinks are not supported"),
        ({"sink_uri": "mysql://root@10.1.2.3:3306/"}, 422, "TISTREAM_CHANGEFEED__SINK_HOSTS"),
        ({"start_ts": "1"}, 410, "below the earliest"),
        ({"start_ts": str(1 << 62)}, 400, "lies above the tenant's resolved_ts"),
        ({"changefeed_id": "-"}, 400, "changefeed_id"),
        ({"sink_uri": f"kafka://127.0.0.1:1/{TOPIC}"}, 503, "no broker answers"),
        ({"config": {"sink": {"dispatchers": [UNFIT]}}}, 400, "has no unique index 'nope'"),
    ):
        answered, problem = answers_of(feeds, {**good, **change}, text)
        assert (answered, text in problem["detail"]) == (status, True), (change, problem)
        assert "/v1/changefeeds" not in problem["detail"], "it is about the feed, not about the worker that has looked"
    assert "hunter3" not in up.log_text()


def test_a_password_in_a_sink_uri_is_stored_sealed_and_opens_the_broker(
    up: Platform, pushed: Consumer, broker: LocalKafka
) -> None:
    loaded = golden.load("everything")
    feeds = Feeds(pushed)
    with_password = uri(broker, "sealed").replace(broker.address, f"{USER}:{PASSWORD}@127.0.0.1:{SASL_PORT}")
    body = {"sink_uri": with_password, "start_ts": str(loaded.snapshot_ts), "end_ts": str(loaded.end_ts)}
    for statuses in (MADE, (200,)):
        assert feeds.create(changefeed_id="sealed", **body)[0] in statuses
    assert "sasl-password=${secret:sealed.sasl-password}" in feeds.get("sealed")["sink_uri"]
    eventually(lambda: feeds.get("sealed")["state"] == "finished", pause_s=0.5)
    assert sum(map(len, committed(broker.address, "sealed").values())) > 100
    secrets = pushed.client.get(pushed.base.replace("/pull", "") + "/secrets").json()["secrets"]
    assert [(one["name"], one["used_by"]) for one in secrets] == [("sealed.sasl-password", ["sealed"])]
    answers = [feeds.get("sealed"), feeds.look("sealed", "events"), feeds.look("sealed", "tables"), secrets]
    assert PASSWORD not in str(answers)
    assert PASSWORD not in up.log_text()
    assert PASSWORD.encode() not in (up.data_dir / "meta.db").read_bytes()
    assert feeds.remove("sealed") == 200
    assert pushed.client.get(pushed.base.replace("/pull", "") + "/secrets").json()["secrets"] == []
