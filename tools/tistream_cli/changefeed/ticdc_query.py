"""Converts the output of `cdc cli changefeed query` to a changefeed that continues at the same checkpoint. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tistream_client.cli.errors import CliError

_MASKED = re.compile(r"[:=](?:xxxxx|\*{3,})(?=[@&]|$)")
_STARS = re.compile(r"xxxxx|\*{3,}")
_STARTS = ("checkpoint_tso", "checkpoint_ts", "start_ts")


@dataclass(frozen=True, slots=True)
class QueriedFeed:
    """A changefeed of TiCDC, as `cdc cli changefeed query` prints it. `start_ts` is its checkpoint, or its start if it
    has no checkpoint. `end_ts` is None if the feed has no end."""

    feed_id: str
    sink_uri: str
    start_ts: int
    end_ts: int | None
    config: dict[str, Any]


def queried(text: str, sink_uri: str | None = None, file: str = "the input") -> QueriedFeed:
    """Parse the output of `cdc cli changefeed query`. `file` is its name in errors. `sink_uri` replaces the one in it,
    whose passwords TiCDC has masked, and has the secrets that are masked in the configuration: TiCDC masks also those
    that are not set. Raises CliError, which names the member and what to do."""
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise CliError(
            f"{file} is not JSON ({error}): write the output of `cdc cli changefeed query -c ID` into it"
        ) from error
    if not isinstance(found, dict):
        raise CliError(f"{file} is not a JSON object: write the output of `cdc cli changefeed query -c ID` into it")
    feed_id, uri = found.get("id"), sink_uri or found.get("sink_uri")
    if not isinstance(feed_id, str) or not isinstance(uri, str):
        raise CliError(f"{file} has no id or no sink_uri: query the changefeed without --simple")
    if _MASKED.search(uri):
        raise CliError(f"TiCDC has masked the password in sink_uri of {file}: give the whole URI with --sink-uri")
    config = found.get("config") or {}
    if not isinstance(config, dict):
        raise CliError(f"config in {file} is not an object: query the changefeed without --simple")
    config = _given(config)
    if sink_uri is not None:
        config = _without_masked(config)
    for path, value in _texts(config, ""):
        if _STARS.fullmatch(value) or _MASKED.search(value):
            raise CliError(f"TiCDC has masked {path} in config: put it into {file}, or give it with --sink-uri")
    start = next((ts for name in _STARTS if (ts := _number(found, name, file))), 0)
    if not start:
        raise CliError(f"{file} has no checkpoint_tso, checkpoint_ts or start_ts: query the changefeed again")
    return QueriedFeed(feed_id, uri, start, _number(found, "target_ts", file) or None, config)


def _number(found: Mapping[str, Any], name: str, file: str) -> int:
    value = found.get(name) or 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CliError(f"{name} in {file} is {str(value)[:40]!r}, which is not a timestamp: query the changefeed again")
    return value


def _given(part: dict[str, Any]) -> dict[str, Any]:
    """The members that have a value. TiCDC prints null or an empty text for a member that is not set."""
    out = {name: _given(value) if isinstance(value, dict) else value for name, value in part.items()}
    return {name: value for name, value in out.items() if value not in (None, "", {}, [])}


def _without_masked(part: Mapping[str, Any]) -> dict[str, Any]:
    """The members that are no masked secret."""
    out = {name: _without_masked(value) if isinstance(value, dict) else value for name, value in part.items()}
    return {name: value for name, value in out.items() if not (isinstance(value, str) and _STARS.fullmatch(value))}


def _texts(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in part.items():
        if isinstance(value, dict):
            yield from _texts(value, f"{path}{name}.")
        elif isinstance(value, str):
            yield f"{path}{name}", value
