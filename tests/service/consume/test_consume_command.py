"""`tistream consume` against a real Kafka: whole transactions in order and each once, wherever it was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.feed_topic import ShopTopic
from support.mariadb import MariaDb
from support.waiting import PATIENCE_S, eventually
from tistream_cli.platform.local_kafka import LocalKafka


@pytest.fixture(scope="module")
def topic(broker: LocalKafka) -> ShopTopic:
    """A topic that nothing changes."""
    return shop_topic(broker, "shop")


def shop_topic(broker: LocalKafka, name: str) -> ShopTopic:
    written = ShopTopic(broker.address, name, seed=7)
    written.begin()
    written.transactions(60)
    return written


def command(topic: ShopTopic, *options: str) -> list[str]:
    url = f"kafka://{topic.address}/{topic.topic}?protocol=open-protocol&partition-num=3"
    return [sys.executable, "-m", "tistream_cli", "consume", url, *options]


def run(topic: ShopTopic, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(topic, *options), capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def killed_at(topic: ShopTopic, ts: int, reached: Callable[[], int], *options: str) -> None:
    """Run the command until it has written everything up to `ts`, then kill it."""
    with subprocess.Popen(command(topic, *options)) as process:
        eventually(lambda: process.poll() is not None or reached() >= ts)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)


def lines(path: Path) -> list[dict[str, Any]]:
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def replayed(events: list[dict[str, Any]]) -> tuple[dict[int, str], list[tuple[int, str]]]:
    """The tables that lines of ndjson leave; each line must fit what was there before."""
    orders: dict[int, str] = {}
    log: list[tuple[int, str]] = []
    for event in events:
        if event["type"] != "row":
            continue
        row, old = event["row"], event["old_row"]
        if event["table"] == "log":
            log.append((int(row["id"]), row["note"]))
            continue
        number = int((row or old)["id"])
        assert orders.get(number) == (old and old["note"]), event
        if row is None:
            del orders[number]
        else:
            orders[number] = row["note"]
    return orders, log


def test_a_file_has_each_event_once_and_in_order_after_kills(topic: ShopTopic, tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    options = ("--into", f"ndjson:{path}", "--until", str(topic.ts))
    with path.open("wb") as file:
        file.write(b'{"type":"resolved","ts":"0","progress":{"ts":"0","offsets":[],"ddls":[]}}\n{"type":"row","comm')
    done = run(topic, *options)
    assert done.returncode == 0, done.stderr
    found = lines(path)
    assert replayed(found) == (topic.orders, topic.log)
    assert sum(one["type"] == "row" for one in found) == topic.events
    stamps = [int(one["commit_ts"]) for one in found if one["type"] != "resolved"]
    assert stamps == sorted(stamps)
    assert [one["query"][:6] for one in found if one["type"] == "ddl"] == ["CREATE", "CREATE", "CREATE", "ALTER "]

    at = path.read_bytes().rindex(b'\n{"type":"resolved"')  # one poll may have read the whole topic
    with path.open("r+b") as file:
        file.truncate(at + 10)  # a crash in the middle of the progress
    assert run(topic, *options).returncode == 0
    assert replayed(lines(path)) == (topic.orders, topic.log)


def test_a_server_has_what_the_topic_says_after_kills(broker: LocalKafka, mariadb: MariaDb, tmp_path: Path) -> None:
    topic = shop_topic(broker, "shop-grows")
    for name in ("shop", "tistream"):
        mariadb.run(f"DROP DATABASE IF EXISTS `{name}`")
    mariadb.run("CREATE DATABASE tistream")
    mariadb.run("GRANT ALL ON shop.* TO tistream@127.0.0.1")
    into = tmp_path / "into"
    into.write_text(f"mysql://tistream:secret@127.0.0.1:{mariadb.port}\n")
    options = ("--into-file", str(into), "--until", str(topic.ts))

    def reached() -> int:
        found = mariadb.run("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'consumed'")
        if found[0][0] == 0:
            return 0
        stored = [json.loads(one) for (one,) in mariadb.run("SELECT progress FROM tistream.consumed")]
        return max((int(one["ts"]) for one in stored), default=0)

    for part in (1, 2):
        killed_at(topic, topic.first_ts + part * (topic.ts - topic.first_ts) // 3, reached, *options)
    done = run(topic, *options)
    assert done.returncode == 0, done.stderr
    assert dict(mariadb.run("SELECT id, note FROM shop.orders")) == topic.orders
    assert sorted(mariadb.run("SELECT id, note FROM shop.log")) == sorted(topic.log)
    assert run(topic, *options).returncode == 0
    assert len(mariadb.run("SELECT id FROM shop.log")) == len(topic.log)

    mariadb.run(f"DELETE FROM shop.orders WHERE id = {next(iter(topic.orders))}")
    topic.transactions(40)
    differs = run(topic, "--into-file", str(into), "--until", str(topic.ts))
    assert differs.returncode == 1
    assert "shop.orders: no row has the values of id" in differs.stderr
    assert "Something else writes to the table" in differs.stderr


def test_a_stream_of_lines(topic: ShopTopic) -> None:
    done = run(topic, "--into", "ndjson", "--until", str(topic.ts))
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert replayed(found) == (topic.orders, topic.log)


@pytest.mark.parametrize(
    ("url", "options", "status", "reason"),
    [
        ("kafka://{address}/none", ("--into", "ndjson"), 1, "Kafka has no topic none"),
        ("kafka://{address}/shop?protocol=maxwell", ("--into", "ndjson"), 2, "open-protocol and canal-json can"),
        ("kafka://{address}/shop?protocol=canal-json", ("--into", "ndjson"), 1, "topic shop, partition "),
        ("kafka://u:p@{address}/shop", ("--into", "ndjson"), 2, "holds a password"),
        ("http://{address}/shop", ("--into", "ndjson"), 2, "must begin with kafka://"),
        ("kafka://{address}/shop", (), 2, "give exactly one of --into"),
        ("kafka://{address}/shop", ("--into", "postgres://x"), 2, "or use ndjson"),
        ("kafka://{address}/shop", ("--into", "ndjson:/nowhere/file"), 1, "cannot be opened"),
        ("kafka://{address}/shop?sasl-user=x", ("--into", "ndjson"), 2, "--password-file"),
    ],
)
def test_what_cannot_be_read_or_written_is_named(
    topic: ShopTopic, url: str, options: tuple[str, ...], status: int, reason: str
) -> None:
    argv = [sys.executable, "-m", "tistream_cli", "consume", url.format(address=topic.address), *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == status
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
