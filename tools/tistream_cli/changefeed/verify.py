"""The implementation of `tistream changefeed verify`, which compares a feed's topics or tables with the tenant's
committed rows."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from tistream_cli.changefeed.changefeed import FeedOf
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError


@dataclass(frozen=True, slots=True)
class VerifyRange:
    """The options of `changefeed verify`. For an option that is None, the API uses its default."""

    from_ts: int | None
    to_ts: int | None
    table: str | None
    repair_topic: str | None


def verify_feed(client: ApiClient, feed: FeedOf, wanted: VerifyRange, *, as_json: bool) -> None:
    """Compare the topics of a feed with the tenant's committed rows, and print the differences. Raises CliError, also
    if there are differences."""
    body: dict[str, object] = {} if wanted.from_ts is None else {"from_ts": str(wanted.from_ts)}
    body |= {} if wanted.to_ts is None else {"to_ts": str(wanted.to_ts)}
    body |= {} if wanted.table is None else {"table": wanted.table}
    body |= {} if wanted.repair_topic is None else {"repair_topic": wanted.repair_topic}
    found = client.call("POST", feed.path("verify"), body)
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if as_json else "\n".join(_lines(found, wanted)) + "\n")
    if not found["equal"]:
        raise CliError(
            f"changefeed {found['changefeed_id']}: the {found['of']} differ from the pool"
            + ("; --repair TOPIC writes the missing events into another topic" if found["of"] == "topics" else "")
        )


def _lines(found: dict[str, Any], wanted: VerifyRange) -> list[str]:
    topics = found["of"] == "topics"
    lines = [f"above {found['from_ts']}, up to {found['to_ts']}:" if topics else f"as of {found['to_ts']}:"]
    units = ("events", "messages") if topics else ("rows", "in the database")
    lines += [
        f"  {one['database']}.{one['table']}: {one['events']} {units[0]}, {one['messages']} {units[1]}"
        + "".join(f", {one[what]} {what}" for what in ("missing", "unexpected", "repeated") if one[what])
        for one in found["tables"]
    ]
    lines += [
        f"  {one['what']}: {one['database']}.{one['table']} {json.dumps(one['key'])}, commit_ts {one['commit_ts']}"
        + (f", {one['topic']}-{one['partition']}" if topics else "")
        + ("" if one["offset"] is None else f", offset {one['offset']}")
        for one in found["differences"]
    ]
    if wanted.repair_topic is not None:
        lines.append(f"  {found['repaired']} events written to topic {wanted.repair_topic}")
    return [*lines, "  equal" if found["equal"] else "  different"]
