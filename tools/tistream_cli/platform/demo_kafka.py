"""`tistream demo-kafka`: writes the changes of a recorded TiDB into a Kafka, and reads them back with Kafka's own
console consumer."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tistream_cli.changefeed.changefeed import FeedOf, NewFeed, create_feed, show_feed
from tistream_cli.platform.data_dir import OWN_UMASK
from tistream_cli.platform.demo_platform import DemoClient, empty_data_dir, platform_of, push_whole
from tistream_cli.platform.local_kafka import LocalKafka, jars, local_kafka
from tistream_cli.platform.ports import free_ports
from tistream_cli.platform.recorded import Recorded, load_recorded
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError

_TOPIC, _PARTITIONS = "changes", 3
_FEED = "demo"
_FINISHED_SECONDS = 600
_CONSUMER_SECONDS = 600
_IDLE_MS = 10_000  # the console consumer ends after this time without a message
_POLL_SECONDS = 0.5
_SHOWN = 8
_WIDTH = 160


@dataclass(frozen=True, slots=True)
class DemoKafkaOptions:
    """The arguments of the demo: the recorded set, the demo's directory, and the platform's port (0: any free port)."""

    golden: Path
    data_dir: Path
    port: int


def run_demo_kafka(options: DemoKafkaOptions) -> None:
    """Run the demo. Raises CliError if any part fails, or if Kafka does not have what the feed has written."""
    console = Console(highlight=False, soft_wrap=True)
    jars()
    recorded = load_recorded(options.golden)
    os.umask(OWN_UMASK)  # this process writes into the platform's directory
    empty_data_dir(options.data_dir)
    console.print(f"starting TiStream in {options.data_dir} …")
    with platform_of(options.data_dir, options.port) as url:
        client = DemoClient(url)
        push_whole(client, recorded, options.data_dir)
        console.print(f"pushed {len(recorded.arrivals)} change files that TiDB's stores wrote; starting Kafka …")
        port, controller_port = free_ports(2, random.SystemRandom())
        with local_kafka(options.data_dir / "kafka", port, controller_port) as broker:
            _feed(console, client, recorded, broker)
            _read(console, broker)


def _feed(console: Console, client: ApiClient, recorded: Recorded, broker: LocalKafka) -> None:
    """Create a changefeed that ends with the recording, and wait until it has finished. Raises CliError."""
    feed = FeedOf(recorded.tenant.cluster_id, recorded.tenant.tenant_id, _FEED)
    uri = (
        f"kafka://{broker.address}/{_TOPIC}?protocol=canal-json&enable-tidb-extension=true&partition-num={_PARTITIONS}"
    )
    console.print(f"$ tistream changefeed create --changefeed-id {_FEED} --sink-uri '{uri}'", markup=False)
    create_feed(client, feed, NewFeed(uri, None, str(recorded.snapshot_ts), recorded.end_ts), dry_run=False)
    pause = threading.Event()
    for _ in range(int(_FINISHED_SECONDS / _POLL_SECONDS)):
        found: Any = client.call("GET", feed.path())
        if found["state"] == "finished":
            show_feed(client, feed, as_json=False)
            return
        if found["state"] == "failed":
            raise CliError(f"changefeed {found['changefeed_id']} has failed: {found['error']}")
        pause.wait(_POLL_SECONDS)
    raise CliError(
        f"changefeed {found['changefeed_id']} has not finished in {_FINISHED_SECONDS} s: held_by says what it waits "
        f"for: {found}"
    )


def _read(console: Console, broker: LocalKafka) -> None:
    """Read the topic with Kafka's console consumer, and print the first messages and the kinds of all. Raises
    CliError."""
    arguments = ("--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", str(_IDLE_MS))
    console.print(f"$ kafka-console-consumer --topic {_TOPIC} {' '.join(arguments)}", markup=False)
    done = subprocess.run(
        broker.console_consumer(_TOPIC, *arguments),
        capture_output=True,
        timeout=_CONSUMER_SECONDS,
        check=False,
    )
    lines = [line for line in done.stdout.split(b"\n") if line]
    for line in lines[:_SHOWN]:
        console.print(line.decode()[:_WIDTH], markup=False)
    kinds: dict[str, int] = {}
    for line in lines:
        kind = json.loads(line)["type"]
        kinds[kind] = kinds.get(kind, 0) + 1
    if not kinds.get("INSERT"):
        raise CliError(f"the console consumer has read no row: {done.stderr.decode(errors='replace')[-500:].strip()}")
    console.print(f"… {len(lines)} messages: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
