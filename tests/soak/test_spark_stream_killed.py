"""A stream of the Spark data source into a checkpointed sink, whose process is killed at random."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from support import platform
from support.pulled import pulled_whole
from support.waiting import eventually


def test_a_query_that_is_killed_has_each_change_once(tmp_path: Path) -> None:
    rng, deaths = random.Random(6), 0
    with platform.running(tmp_path / "platform") as up:
        pulled = pulled_whole(up, "everything", "acme")
        url = pulled.consumer.url
        options = {"url": url, "cluster": "8", "tenant": "acme", "table": "shop.orders", "maxBatchSpan": "20ms"}
        steps = [tmp_path / "checkpoint" / name for name in ("offsets", "commits")]

        def run(until: int) -> bool:
            """Read until the checkpoint has so many files more, or to the end. Whether it was killed."""
            wanted = files(steps) + until
            with (tmp_path / "log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "support.spark_stream", str(tmp_path), json.dumps(options)],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            eventually(lambda: process.poll() is not None or files(steps) >= wanted)
            killed = process.poll() is None
            if killed:
                os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() in (0, -signal.SIGKILL), (tmp_path / "log").read_text()[-5_000:]
            return killed

        while run(rng.randrange(2, 9)):
            deaths += 1
        found = [tuple(row) for row in json.loads((tmp_path / "rows.json").read_text())]
    assert deaths > 2
    own = [one for one in pulled.events if one["type"] == "row" and one["table"] == "orders"]
    assert found == sorted((int(one["commit_ts"]), int(one["key"]["id"]), one["op"]) for one in own)


def files(folders: list[Path]) -> int:
    return sum(1 for folder in folders if folder.exists() for path in folder.iterdir() if path.name.isdigit())
