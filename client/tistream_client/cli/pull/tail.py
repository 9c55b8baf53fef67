"""`tistream tail`: prints changes as lines for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.output import cell, colored, json_wanted
from tistream_client.cli.points.show import change_of, members, sign
from tistream_client.cli.pull.format import PullRequest
from tistream_client.cli.pull.pull import pull
from tistream_client.cli.times import shown_time

_COLORS = {"+": 32, "~": 33, "-": 31, "ddl": 35, "dim": 2}


def line_of(event: Mapping[str, Any], *, color: bool) -> str | None:
    """The text for an event; None if events of its type are not shown."""

    def painted(text: str, name: str) -> str:
        return f"\x1b[{_COLORS[name]}m{text}\x1b[0m" if color else text

    kind = event["type"]
    if kind == "raw":
        mark = "-" if event["op"] == "delete" else "+"
        shown = f"{mark} {event['keyspace']} {event['key']}{'' if mark == '-' else ' = ' + str(event['value'])}"
    elif kind == "row":
        mark = sign(event)
        name = f"{cell(event['database'])}.{cell(event['table'])}"
        change = members(event["key"]) if mark == "-" else change_of(event)
        key = "" if mark != "~" else f"{members(event['key'])}  "
        shown = f"{mark} {name}  {key}{change}"
    elif kind == "ddl":
        mark, shown = "ddl", f"! {cell(event['query'])}"
    else:
        return None
    return f"{painted(shown_time(event['commit_ts']), 'dim')} {painted(shown, mark)}"


def run_tail(client: ApiClient, request: PullRequest, limit: int | None, color: bool | None) -> None:
    """Print a line for each event until `limit` events are printed; None: without end. `color` None: in colour on a
    terminal. With `-o json`, events are printed as the API sends them. Raises CliError."""
    out, as_json = sys.stdout, json_wanted()
    paint = colored(color, out, os.environ)
    left = limit
    for line in _lines(client, request):
        shown = line.decode() if as_json else line_of(json.loads(line), color=paint)
        if shown is None or (as_json and not line.startswith((b'{"type":"row"', b'{"type":"ddl"', b'{"type":"raw"'))):
            out.flush()
            continue
        out.write(shown + "\n")
        left = None if left is None else left - 1
        if left == 0:
            break
    out.flush()


def _lines(client: ApiClient, request: PullRequest) -> Iterator[bytes]:
    def say(text: str) -> None:
        sys.stderr.write(f"waiting: {text}\n")

    for line, _ in pull(client, request, say=say):
        yield line
