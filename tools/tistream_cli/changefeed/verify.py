"""The implementation of `tistream changefeed verify`, which compares a feed's topics, files or tables with the tenant's
committed rows."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from tistream_cli.changefeed.changefeed import FeedOf
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import FIX, CliError, Refused, failed
from tistream_client.core.errors import Unavailable

_NAMES = {"lake": "tables in Iceberg"}
_UNITS = {"topics": ("events", "messages"), "files": ("events", "in files"), "lake": ("rows", "in Iceberg")}


@dataclass(frozen=True, slots=True)
class VerifyRange:
    """The options of `changefeed verify`. For an option that is None, the API uses its default."""

    from_ts: int | None
    to_ts: int | None
    table: str | None
    repair_topic: str | None
    key_from: str | None = None
    key_to: str | None = None


def verify_feed(client: ApiClient, feed: FeedOf, wanted: VerifyRange, *, as_json: bool) -> None:
    """Compare the topics, files or tables of a feed with the tenant's committed rows, and print the differences. Raises
    CliError, also if there are differences."""
    body: dict[str, object] = {} if wanted.from_ts is None else {"from_ts": str(wanted.from_ts)}
    body |= {} if wanted.to_ts is None else {"to_ts": str(wanted.to_ts)}
    body |= {} if wanted.table is None else {"table": wanted.table}
    keys = {"key_from": wanted.key_from, "key_to": wanted.key_to}
    body |= {name: value for name, value in keys.items() if value is not None}
    body |= {} if wanted.repair_topic is None else {"repair_topic": wanted.repair_topic}
    found = _verified(client, feed, body)
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if as_json else "\n".join(lines_of(found, wanted)) + "\n")
    if not found["equal"]:
        raise CliError(
            f"changefeed {found['changefeed_id']}: the {_NAMES.get(found['of'], found['of'])} differ from the pool"
            + ("; --repair TOPIC writes the missing events into another topic" if found["of"] == "topics" else "")
        )


def _verified(client: ApiClient, feed: FeedOf, body: dict[str, object]) -> dict[str, Any]:
    """The answer of the API. A refusal that a repeat cannot mend, because the feed has failed, says so."""
    try:
        return dict(client.call("POST", feed.path("verify"), body))
    except Refused as error:
        if not isinstance(error.refusal, Unavailable):
            raise
        one = client.call("GET", feed.path())
        if one["state"] != "failed":
            raise
        way_out = f"; the feed has failed: {one['error']}: mend that, and then `tistream changefeed resume`"
        raise Refused(str(failed(error.refusal, way_out)), FIX, error.refusal) from error


def lines_of(found: dict[str, Any], wanted: VerifyRange) -> list[str]:
    """The lines that are printed for the answer of the API."""
    topics, files = found["of"] == "topics", found["of"] == "files"
    ranged = topics or files or found["of"] == "lake"
    lines = [f"above {found['from_ts']}, up to {found['to_ts']}:" if ranged else f"as of {found['to_ts']}:"]
    units = _UNITS.get(found["of"], ("rows", "in the database"))
    there = "in the pool" if found["of"] == "tables" else "there"
    lines += [
        f"  {one['database']}.{one['table']}: {one['events']} {units[0]}, {one['messages']} {units[1]}"
        + "".join(f", {one[what]} {what}" for what in ("missing", "unexpected", "repeated") if one[what])
        for one in found["tables"]
    ]
    lines += [
        f"  {one['what']}: {one['database']}.{one['table']} {json.dumps(one['key'])}, commit_ts {one['commit_ts']}"
        + (f", {one['topic']}-{one['partition']}" if topics else f", {one['topic']}" if one["topic"] else "")
        + ("" if one["offset"] is None else f", {'event' if files else 'offset'} {one['offset']}")
        for one in found["differences"]
    ]
    lines += [
        f"  not as it was written: {one['database'] or '*'}.{one['table'] or '*'} above {one['from_ts']}, up to "
        f"{one['to_ts']}: {one['events']} events were written, {one['messages']} are {there}"
        for one in found.get("window_differences", ())
    ]
    lines += [f"  left out: {one['database']}.{one['table']} {one['reason']}" for one in found.get("left_out", ())]
    if found.get("windows"):
        lines.append(f"  {found['windows']} windows compared with the fingerprints of what was written")
    if wanted.repair_topic is not None:
        lines.append(f"  {found['repaired']} events written to topic {wanted.repair_topic}")
    return [*lines, "  equal" if found["equal"] else "  different"]
