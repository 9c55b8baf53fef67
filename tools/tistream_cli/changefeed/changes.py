"""The implementation of `tistream changefeed update|pause|resume|skip`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tistream_cli.changefeed.changefeed import FeedOf, read_config
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError
from tistream_client.cli.output import say
from tistream_client.cli.times import shown_ts


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


def resume_feed(client: ApiClient, feed: FeedOf, checkpoint_ts: int | None) -> None:
    """Resume a feed after `checkpoint_ts`; if that is None, at the progress that the sink has. Raises CliError."""
    _print_state(
        client.call("POST", feed.path("resume"), {} if checkpoint_ts is None else {"checkpoint_ts": str(checkpoint_ts)})
    )


@dataclass(frozen=True, slots=True)
class SkippedEvent:
    """The options of `changefeed skip`. Either `key` or `ddl_job` identifies the event."""

    commit_ts: int
    table: str
    key: str | None
    ddl_job: int | None
    reason: str


def skip_event(client: ApiClient, feed: FeedOf, skip: SkippedEvent) -> None:
    """Make a feed leave out one event. The event goes to the dead-letter topic. Raises CliError."""
    body: dict[str, object] = {"commit_ts": str(skip.commit_ts), "table": skip.table, "reason": skip.reason}
    body |= {} if skip.key is None else {"key": skip.key}
    body |= {} if skip.ddl_job is None else {"ddl_job": str(skip.ddl_job)}
    one = client.call("POST", feed.path("skip"), body)
    further = "; `changefeed resume` continues" if one["state"] in ("failed", "paused") else ""
    say(f"changefeed {one['changefeed_id']} leaves {len(one['skips'])} events out{further}", one)


def _print_state(one: dict[str, object]) -> None:
    say(f"changefeed {one['changefeed_id']} is {one['state']}, checkpoint {shown_ts(str(one['checkpoint_ts']))}", one)
