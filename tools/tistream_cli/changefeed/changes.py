"""The implementation of `tistream changefeed update|pause|resume|skip`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tistream_cli.changefeed.changefeed import FeedOf, read_config
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import USAGE, CliError
from tistream_client.cli.output import say
from tistream_client.cli.times import now_ms, shown_ts, ts_text
from tistream_client.core.times import NOW


@dataclass(frozen=True, slots=True)
class FeedChange:
    """The options of `changefeed update`. An option that is None keeps its value. `no_target`: the feed does not
    end."""

    sink_uri: str | None
    config: Path | None
    target_ts: int | None
    no_target: bool


def update_feed(client: ApiClient, feed: FeedOf, change: FeedChange) -> None:
    """Change a feed that is not running. Raises CliError."""
    if change.no_target and change.target_ts is not None:
        raise CliError("--target-ts and --no-target-ts contradict each other: give one of them")
    body: dict[str, object] = {} if change.sink_uri is None else {"sink_uri": change.sink_uri}
    body |= {} if change.config is None else {"config": read_config(change.config)}
    body |= {"end_ts": None} if change.no_target else {}
    body |= {} if change.target_ts is None else {"end_ts": str(change.target_ts)}
    if not body:
        raise CliError("the command would change nothing: give --sink-uri, --config, --target-ts or --no-target-ts")
    one = client.call("PUT", feed.path(), body)
    say(
        f"changefeed {one['changefeed_id']} has revision {one['revision']} and is {one['state']}; "
        "`changefeed resume` puts it in force, and `changefeed events` shows the ts",
        one,
    )


def pause_feed(client: ApiClient, feed: FeedOf) -> None:
    """Pause a feed. Raises CliError."""
    _print_state(client.call("POST", feed.path("pause")))


def resume_feed(client: ApiClient, feed: FeedOf, checkpoint_ts: str | None) -> None:
    """Resume a feed after `checkpoint_ts`, a time as times.ts_text accepts it, where `now` is what the tenant has
    resolved; if that is None, at the progress that the sink has. Raises CliError."""
    body = {}
    if checkpoint_ts is not None:
        ts = ts_text(checkpoint_ts, now_ms())
        body["checkpoint_ts"] = client.call("GET", feed.path("lag"))["resolved_ts"] if ts == NOW else ts
    _print_state(client.call("POST", feed.path("resume"), body))


@dataclass(frozen=True, slots=True)
class SkippedEvent:
    """The options of `changefeed skip`. Either `key` or `ddl_job` identifies the event."""

    commit_ts: int
    table: str
    key: str | None
    ddl_job: int | None
    reason: str


def skip_event(client: ApiClient, feed: FeedOf, skip: SkippedEvent) -> None:
    """Make a feed leave out one event. The event goes to the dead-letter topic. A warning says if the feed, or the
    table, waits for another event. Raises CliError."""
    if (skip.key is None) == (skip.ddl_job is None):
        raise CliError("give exactly one of --key (of a row event, in hex) and --ddl-job: the error has it", USAGE)
    body: dict[str, object] = {"commit_ts": str(skip.commit_ts), "table": skip.table, "reason": skip.reason}
    body |= {} if skip.key is None else {"key": skip.key}
    body |= {} if skip.ddl_job is None else {"ddl_job": str(skip.ddl_job)}
    one = client.call("POST", feed.path("skip"), body)
    if other := other_cause(one, skip):
        sys.stderr.write(f"warning: the named event is not the one that is waited for: {other}\n")
    further = "; `changefeed resume` continues" if one["state"] in ("failed", "paused") else ""
    say(f"changefeed {one['changefeed_id']} has {len(one['skips'])} event(s) to leave out{further}", one)


def other_cause(feed: dict[str, Any], skip: SkippedEvent) -> str | None:
    """What a feed that has failed, or the table that has stopped, waits for, if that is not the event of `skip`. None
    if it may be, or nothing is waited for. `feed`: the API's ChangefeedInfo."""
    causes = [feed["error"]] if feed["state"] == "failed" else []
    database, _, table = skip.table.partition(".")
    causes += [one["reason"] for one in feed["stopped"] if one["database"] == database and one["table"] in ("", table)]
    known = [cause for cause in causes if cause]
    return known[0] if known and not any(_may_be(cause, skip) for cause in known) else None


def _may_be(cause: str, skip: SkippedEvent) -> bool:
    named = {what: set(re.findall(rf"\b{what} ([0-9a-f]+)\b", cause)) for what in ("commit_ts", "key", "DDL job")}
    asked = {"commit_ts": skip.commit_ts, "key": (skip.key or "").lower(), "DDL job": skip.ddl_job or ""}
    if not named["commit_ts"]:  # the cause names no event at all
        return True
    return all(not found or str(asked[what]) in found for what, found in named.items())


def _print_state(one: dict[str, object]) -> None:
    say(f"changefeed {one['changefeed_id']} is {one['state']}, checkpoint {shown_ts(str(one['checkpoint_ts']))}", one)
