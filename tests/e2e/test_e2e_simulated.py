"""A simulated upstream against the running platform: regions split, agents lose what they had and ask for coverage,
schemas change; what a consumer pulls sums up to the upstream's truth."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from support import plain_http
from support.platform import COMMAND, Platform
from support.truth_sums import require_sums
from support.waiting import PATIENCE_S, eventually
from tistream_verify.fingerprint import TruthLine

REGIONS = 6
EVENTS, DDLS = 1_000, 4


def pull(url: str, low: int, high: int) -> list[dict[str, Any]]:
    """Every row and ddl event in (low, high], waiting until they are resolved."""
    events: list[dict[str, Any]] = []
    query = {"start_ts": str(low), "end_ts": str(high), "wait_ms": "5000", "limit": "1000000"}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = plain_http.get(f"{url}/changes", params=query)
        if answer.status_code == 503:
            time.sleep(0.2)
            continue
        assert answer.status_code == 200, answer.text
        lines = [json.loads(line) for line in answer.text.splitlines()]
        events += [line for line in lines if line["type"] in ("row", "ddl")]
        if lines[-1]["type"] == "resolved" and int(lines[-1]["resolved_ts"]) >= high:
            return events
        query = {**query, "cursor": lines[-1]["cursor"]}
        query.pop("start_ts", None)
    raise AssertionError(f"not resolved to {high}: {plain_http.get(f'{url}/status', timeout=10).text}")


def truth_lines(truth: Path) -> list[TruthLine]:
    """What the simulator has written down so far; a line that it is writing is left out."""
    written = truth.read_bytes() if truth.exists() else b""
    return [TruthLine.parse(line) for line in written[: written.rfind(b"\n") + 1].splitlines()]


def is_enough(truth: Path) -> bool:
    """Whether the upstream has had some hundred changes, among them DDL."""
    lines = truth_lines(truth)
    return bool(lines) and sum(table.events for table in lines[-1].tables.values()) > EVENTS and lines[-1].ddls > DDLS


def test_pulled_events_sum_up_to_the_truth(up: Platform, tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    where = [
        "--objects",
        str(up.objects),
        "--url",
        up.url,
        "--cluster",
        "sim",
        "--tenant",
        "e2e",
        "--truth",
        str(truth),
    ]
    load = ["--rows-per-s", "300", "--txns-per-s", "100", "--push-ms", "300", "--seed", "12", "--rows-max", "100"]
    wild = ["--churn-per-s", "8", "--ddl-per-min", "120", "--regions", str(REGIONS)]
    command = [str(COMMAND), "simulate", *where, *load, *wild]
    with (tmp_path / "said").open("wb") as out:
        run = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        # by what has happened and not by the clock: a busy machine commits less in a second
        eventually(lambda: run.poll() is not None or is_enough(truth))
    finally:
        run.terminate()
        status = run.wait(PATIENCE_S)
    said = (tmp_path / "said").read_text()
    assert status == 0, said
    scans = re.search(r"(\d+) scans", said)
    assert scans is not None, said
    assert int(scans[1]) > REGIONS + 2, "agents lost what they had, and coverage was asked for"
    lines = truth_lines(truth)
    assert is_enough(truth), said
    events = pull(f"{up.url}/v1/clusters/sim/tenants/e2e", lines[0].ts, lines[-1].ts)
    require_sums(lines, events)
