"""Converts the output of `cdc cli changefeed query` to a changefeed that continues at the same checkpoint. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tistream_cli.errors import CliError

_MASKED = re.compile(r"[:=](?:xxxxx|\*{3,})(?=[@&]|$)")
_STARS = re.compile(r"xxxxx|\*{3,}")


@dataclass(frozen=True, slots=True)
class QueriedFeed:
    """A changefeed of TiCDC, as `cdc cli changefeed query` prints it. `start_ts` is its checkpoint, or its start if it
    has no checkpoint. `end_ts` is None if the feed has no end."""

    feed_id: str
    sink_uri: str
    start_ts: int
    end_ts: int | None
    config: dict[str, Any]


def queried(text: str, sink_uri: str | None = None) -> QueriedFeed:
    """Parse the output of `cdc cli changefeed query`. `sink_uri` replaces the one in it, whose passwords TiCDC has
    masked. Raises CliError, which names the member and what to do."""
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise CliError(
            f"the file is not JSON: {error}; it is the output of `cdc cli changefeed query -c ID`"
        ) from error
    if not isinstance(found, dict):
        raise CliError("the file is not a JSON object; it is the output of `cdc cli changefeed query -c ID`")
    feed_id, uri = found.get("id"), sink_uri or found.get("sink_uri")
    if not isinstance(feed_id, str) or not isinstance(uri, str):
        raise CliError("the file has no id or no sink_uri: query the changefeed without --simple")
    if _MASKED.search(uri):
        raise CliError("TiCDC has masked the password in sink_uri: give the whole URI with --sink-uri")
    config = found.get("config") or {}
    if not isinstance(config, dict):
        raise CliError("config in the file is not an object: query the changefeed without --simple")
    config = _given(config)
    for path, value in _texts(config, ""):
        if _STARS.fullmatch(value):
            raise CliError(f"TiCDC has masked {path} in config: put it into the file, or give it with --sink-uri")
    start = _number(found, "checkpoint_tso") or _number(found, "checkpoint_ts") or _number(found, "start_ts")
    if not start:
        raise CliError("the file has no checkpoint_tso, checkpoint_ts or start_ts: query the changefeed again")
    return QueriedFeed(feed_id, uri, start, _number(found, "target_ts") or None, config)


def _number(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name) or 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CliError(f"{name} in the file is not a timestamp: {str(value)[:40]!r}")
    return value


def _given(part: dict[str, Any]) -> dict[str, Any]:
    """The members that have a value. TiCDC prints null or an empty text for a member that is not set."""
    out = {name: _given(value) if isinstance(value, dict) else value for name, value in part.items()}
    return {name: value for name, value in out.items() if value not in (None, "", {}, [])}


def _texts(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in part.items():
        if isinstance(value, dict):
            yield from _texts(value, f"{path}{name}.")
        elif isinstance(value, str):
            yield f"{path}{name}", value
