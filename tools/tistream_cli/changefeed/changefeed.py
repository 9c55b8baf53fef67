"""The implementation of `tistream changefeed …`. Those of `update`, `pause`, `resume` and `skip` are in changes.py."""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tistream.model.ts import physical_ms
from tistream_cli.changefeed.ticdc_query import queried
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import USAGE, CliError
from tistream_client.cli.output import json_wanted, say, show_document
from tistream_client.cli.pull.run_pull import newest_ts
from tistream_client.cli.times import now_ms, shown_ts, ts_text
from tistream_client.core.times import NOW


@dataclass(frozen=True, slots=True)
class FeedOf:
    """Identifies a feed: its tenant, and its id."""

    cluster: str
    tenant: str
    feed_id: str

    def path(self, *more: str) -> str:
        """The URL path of the feed. With `more`, that of a resource below it."""
        return tenant_path(self.cluster, self.tenant, "changefeeds", self.feed_id, *more)


@dataclass(frozen=True, slots=True)
class NewFeed:
    """The options of `changefeed create`. `config`: the path of a configuration file in TiCDC's TOML. `start_ts`: a
    time as times.ts_text accepts it."""

    sink_uri: str
    config: Path | None
    start_ts: str | None
    target_ts: int | None


def create_feed(client: ApiClient, feed: FeedOf, new: NewFeed, *, dry_run: bool) -> None:
    """Create a feed; with `dry_run`, print what it would do. Raises CliError."""
    body: dict[str, object] = {"changefeed_id": feed.feed_id, "sink_uri": new.sink_uri}
    body |= {} if new.config is None else {"config": read_config(new.config)}
    if new.start_ts is not None:
        start_ts = ts_text(new.start_ts, now_ms())
        body["start_ts"] = newest_ts(client, feed.cluster, feed.tenant) if start_ts == NOW else start_ts
    body |= {} if new.target_ts is None else {"end_ts": str(new.target_ts)}
    _create(client, feed, body, dry_run=dry_run)


def import_feed(
    client: ApiClient, cluster: str, tenant: str, file: Path, sink_uri: str | None, *, dry_run: bool
) -> None:
    """Create a feed that continues at the checkpoint of a TiCDC changefeed. `file`: a file with the output of `cdc cli
    changefeed query`. Raises CliError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}") from error
    found = queried(text, sink_uri, str(file))
    body: dict[str, object] = {
        "changefeed_id": found.feed_id,
        "sink_uri": found.sink_uri,
        "start_ts": str(found.start_ts),
        "config": found.config,
    }
    body |= {} if found.end_ts is None else {"end_ts": str(found.end_ts)}
    _create(client, FeedOf(cluster, tenant, found.feed_id), body, dry_run=dry_run)


def _create(client: ApiClient, feed: FeedOf, body: dict[str, object], *, dry_run: bool) -> None:
    path = tenant_path(feed.cluster, feed.tenant, "changefeeds")
    plan = client.call("POST", f"{path}?dry_run=true", body)
    for warning in plan["warnings"]:
        sys.stderr.write(f"warning: {warning}\n")
    if dry_run and json_wanted():
        show_document(plan)
        return
    if dry_run:
        for topic, count in plan["topics"].items():
            sys.stdout.write(f"topic {topic}: {count} partitions\n")
        _write_tables(plan["tables"], plan["table_count"], plan["left_out"])
        return
    made = client.call("POST", path, body)
    say(f"changefeed {made['changefeed_id']} begins after {shown_ts(made['start_ts'])}", made)


def read_config(path: Path) -> dict[str, Any]:
    """Read a configuration file, and convert it to the form that the API accepts. Raises CliError."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        return dict(json.loads(json.dumps(found, allow_nan=False)))
    except OSError as error:
        raise CliError(f"--config {path} cannot be read: {error.strerror}", USAGE) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CliError(f"--config {path} is not TOML: {error}") from error
    except (TypeError, ValueError) as error:
        raise CliError(
            f"--config {path} has a value that no key of a changefeed accepts: {error}: use texts, numbers, true and "
            "false"
        ) from error


def list_feeds(client: ApiClient, cluster: str, tenant: str, *, as_json: bool) -> None:
    """Print the feeds of a tenant. Raises CliError."""
    found: list[dict[str, Any]] = client.call("GET", tenant_path(cluster, tenant, "changefeeds"))["changefeeds"]
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    if not found:
        sys.stdout.write(f"tenant {cluster}/{tenant} has no changefeed\n")
    for one in found:
        lag = "" if one["lag_seconds"] is None else f"  lag {one['lag_seconds']:.1f} s"
        sys.stdout.write(f"{one['changefeed_id']}  {one['state']}  checkpoint {shown_ts(one['checkpoint_ts'])}{lag}\n")


def show_feed(client: ApiClient, feed: FeedOf, *, as_json: bool) -> None:
    """Print one feed: its progress, what holds it back, and the tables that it leaves out. Raises CliError."""
    one: dict[str, Any] = client.call("GET", feed.path())
    if as_json:
        sys.stdout.write(json.dumps(one, indent=2) + "\n")
        return
    sys.stdout.write("\n".join(_lines(one)) + "\n")
    try:
        found: dict[str, Any] = client.call("GET", feed.path("tables"))
    except CliError as error:  # a worker answers this, and none may run
        sys.stderr.write(f"warning: tables that are left out are not known: {error}\n")
        return
    _write_tables([], 0, found["left_out"])


def remove_feed(client: ApiClient, feed: FeedOf, *, keep_progress: bool) -> None:
    """Remove a feed. With `keep_progress`, the next feed of the same id continues where this one has ended. Raises
    CliError."""
    one = client.call("DELETE", feed.path() + ("?keep_progress=true" if keep_progress else ""))
    kept = "; a changefeed of this id that is created without --start-ts continues there" if keep_progress else ""
    say(
        f"changefeed {one['changefeed_id']} removed at checkpoint {one['checkpoint_ts']}; what it has written stays"
        f"{kept}",
        one,
    )


def show_tables(client: ApiClient, feed: FeedOf, *, as_json: bool) -> None:
    """Print the tables that a feed sends, and those that it leaves out. Raises CliError."""
    found: dict[str, Any] = client.call("GET", feed.path("tables"))
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    for warning in found["warnings"]:
        sys.stderr.write(f"warning: {warning}\n")
    _write_tables(found["tables"], found["count"], found["left_out"])


def show_events(client: ApiClient, feed: FeedOf, *, as_json: bool) -> None:
    """Print the history of a feed, newest first. Raises CliError."""
    found: list[dict[str, Any]] = client.call("GET", feed.path("events"))["events"]
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    for one in found:
        parts = [_time(int(one["at_ms"])), one["what"]]
        parts += [f"{name} {one[name]}" for name in ("revision", "from_ts", "after_ts") if one[name] is not None]
        parts += [] if one["by"] is None else [f"by {one['by']}"]
        sys.stdout.write("  ".join(parts) + ("" if one["reason"] is None else f": {one['reason']}") + "\n")


def _write_tables(tables: list[dict[str, Any]], count: int, left_out: list[dict[str, Any]]) -> None:
    """Print tables that a feed sends, `count` in all, and those that it leaves out."""
    for one in tables:
        columns = ", ".join(one["columns"])
        sys.stdout.write(f"table {one['database']}.{one['table']}: {_place(one)}{columns}\n")
    if count > len(tables):
        sys.stdout.write(f"and {count - len(tables)} more tables\n")
    for one in left_out:
        sys.stdout.write(f"left out {one['database']}.{one['table']}: {one['reason']}\n")


def _place(table: dict[str, Any]) -> str:
    """Where a table is sent, as the beginning of a list: a topic has partitions, a directory or an Iceberg table none,
    and a table of a database is not named again."""
    if not table["topic"]:
        return ""
    return f"topic {table['topic']}, partition {table['partition']}, " if table["partition"] else f"{table['topic']}, "


def _lines(one: dict[str, Any]) -> list[str]:
    lines = [f"{one['changefeed_id']}  {one['state']}", f"  sink {one['sink_uri']}"]
    for name in ("start_ts", "checkpoint_ts", "resolved_ts", "end_ts"):
        if one[name] is not None:
            lines.append(f"  {name} {one[name]} ({_time(physical_ms(int(one[name])))})")
    if one["lag_seconds"] is not None:
        lines.append(f"  lag {one['lag_seconds']:.1f} s from the pool to the sink")
    lines.append(f"  {one['rows']} row events, {one['bytes']} bytes, {one['retries']} retries")
    if one["skips"] or one["skipped_events"]:
        lines.append(f"  {one['skipped_events']} events left out, {len(one['skips'])} named")
    if one["applied"] is not None:
        lines.append(f"  revision {one['applied']['revision']} in force above {one['applied']['after_ts']}")
    if one["revision"] > (0 if one["applied"] is None else one["applied"]["revision"]):
        lines.append(f"  revision {one['revision']} is in force when a worker has opened the sink")
    if one["node_id"] is not None:
        lines.append(f"  held by worker {one['node_id']}, epoch {one['epoch']}")
    if one["since_ms"] is not None:
        lines.append(f"  since {_time(int(one['since_ms']))}")
    lines += [
        f"  stopped{' and left' if table['left'] else ''}: {table['database']}.{table['table'] or '*'}, "
        f"{table['checkpoint_ts']} is in the sink"
        for table in one["stopped"]
    ]
    lines += [f"  {held['stage']}: {held['object']}: {held['reason']}" for held in one["held_by"]]
    return lines


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
