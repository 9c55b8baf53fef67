"""The commands of `tistream changefeed`. Options have the same names as in `cdc cli changefeed`."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Json, Tenant, Url
from tistream_client.cli.output import new_app
from tistream_client.cli.times import FORMS, parse_ts, time_form

changefeed_app = new_app("Changefeeds: write a tenant's changes into another system, continuously.")

FeedId = Annotated[str, typer.Option("--changefeed-id", "-c", help="The feed's id.")]
NoConfirm = Annotated[bool, typer.Option("--no-confirm", hidden=True)]  # of `cdc cli`; no command asks here


@changefeed_app.command("create")
def changefeed_create(
    cluster: Cluster,
    tenant: Tenant,
    changefeed_id: FeedId,
    sink_uri: Annotated[str, typer.Option(help="kafka://HOST:PORT,…/TOPIC?protocol=open-protocol&partition-num=3")],
    config: Annotated[Path | None, typer.Option(help="TiCDC's configuration file, in TOML.")] = None,
    start_ts: Annotated[str | None, typer.Option(help=f"{FORMS}; exclusive. Default: now.", callback=time_form)] = None,
    target_ts: Annotated[int | None, typer.Option(help="Finish at this time, inclusive.", parser=parse_ts)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, print the plan, and create nothing.")] = False,
    no_confirm: NoConfirm = False,  # noqa: ARG001
    url: Url = DEFAULT_URL,
) -> None:
    """Create a changefeed. The same command again changes nothing."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf, NewFeed, create_feed
        from tistream_client.cli.api_client import ApiClient

    new = NewFeed(sink_uri, config, start_ts, target_ts or None)  # 0 means no end, as in `cdc cli`
    create_feed(ApiClient(url), FeedOf(cluster, tenant, changefeed_id), new, dry_run=dry_run)


@changefeed_app.command("import")
def changefeed_import(
    cluster: Cluster,
    tenant: Tenant,
    file: Annotated[Path, typer.Argument(help="What `cdc cli changefeed query -c ID` printed.")],
    sink_uri: Annotated[str | None, typer.Option(help="The sink URI, because TiCDC masks its password.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, print the plan, and create nothing.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Create a changefeed that continues where a changefeed of TiCDC stands."""
    with importing():
        from tistream_cli.changefeed.changefeed import import_feed
        from tistream_client.cli.api_client import ApiClient

    import_feed(ApiClient(url), cluster, tenant, file, sink_uri, dry_run=dry_run)


@changefeed_app.command("list")
def changefeed_list(cluster: Cluster, tenant: Tenant, as_json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List a tenant's changefeeds with their states and lags."""
    with importing():
        from tistream_cli.changefeed.changefeed import list_feeds
        from tistream_client.cli.api_client import ApiClient

    list_feeds(ApiClient(url), cluster, tenant, as_json=as_json)


@changefeed_app.command("show")
def changefeed_show(
    cluster: Cluster, tenant: Tenant, changefeed_id: FeedId, as_json: Json = False, url: Url = DEFAULT_URL
) -> None:
    """Show one changefeed: its progress, the worker that runs it, and what holds it back."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf, show_feed
        from tistream_client.cli.api_client import ApiClient

    show_feed(ApiClient(url), FeedOf(cluster, tenant, changefeed_id), as_json=as_json)


@changefeed_app.command("tables")
def changefeed_tables(
    cluster: Cluster, tenant: Tenant, changefeed_id: FeedId, as_json: Json = False, url: Url = DEFAULT_URL
) -> None:
    """List the tables that a changefeed sends, with their topics and partition rules."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf, show_tables
        from tistream_client.cli.api_client import ApiClient

    show_tables(ApiClient(url), FeedOf(cluster, tenant, changefeed_id), as_json=as_json)


@changefeed_app.command("events")
def changefeed_events(
    cluster: Cluster, tenant: Tenant, changefeed_id: FeedId, as_json: Json = False, url: Url = DEFAULT_URL
) -> None:
    """List the history of a changefeed, newest first."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf, show_events
        from tistream_client.cli.api_client import ApiClient

    show_events(ApiClient(url), FeedOf(cluster, tenant, changefeed_id), as_json=as_json)


@changefeed_app.command("update")
def changefeed_update(
    cluster: Cluster,
    tenant: Tenant,
    changefeed_id: FeedId,
    sink_uri: Annotated[str | None, typer.Option(help="The new sink URI.")] = None,
    config: Annotated[Path | None, typer.Option(help="The new configuration file, in TOML.")] = None,
    target_ts: Annotated[int | None, typer.Option(help="Finish at this time, inclusive.", parser=parse_ts)] = None,
    no_target_ts: Annotated[bool, typer.Option("--no-target-ts", help="The feed does not finish.")] = False,
    no_confirm: NoConfirm = False,  # noqa: ARG001
    url: Url = DEFAULT_URL,
) -> None:
    """Change a changefeed that is paused, has failed or has finished. Options that are not given keep their values."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf
        from tistream_cli.changefeed.changes import FeedChange, update_feed
        from tistream_client.cli.api_client import ApiClient

    change = FeedChange(sink_uri, config, target_ts or None, no_target_ts or target_ts == 0)
    update_feed(ApiClient(url), FeedOf(cluster, tenant, changefeed_id), change)


@changefeed_app.command("pause")
def changefeed_pause(cluster: Cluster, tenant: Tenant, changefeed_id: FeedId, url: Url = DEFAULT_URL) -> None:
    """Pause a changefeed."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf
        from tistream_cli.changefeed.changes import pause_feed
        from tistream_client.cli.api_client import ApiClient

    pause_feed(ApiClient(url), FeedOf(cluster, tenant, changefeed_id))


@changefeed_app.command("resume")
def changefeed_resume(
    cluster: Cluster,
    tenant: Tenant,
    changefeed_id: FeedId,
    checkpoint_ts: Annotated[
        str | None,
        typer.Option(
            "--checkpoint-ts",
            "--overwrite-checkpoint-ts",
            help="Continue after it. Above the sink's own progress it leaves a gap, below it sends events again.",
            callback=time_form,
        ),
    ] = None,
    no_confirm: NoConfirm = False,  # noqa: ARG001
    url: Url = DEFAULT_URL,
) -> None:
    """Resume a changefeed that is paused or has failed. It continues at the progress that its sink has stored."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf
        from tistream_cli.changefeed.changes import resume_feed
        from tistream_client.cli.api_client import ApiClient

    resume_feed(ApiClient(url), FeedOf(cluster, tenant, changefeed_id), checkpoint_ts)


@changefeed_app.command("skip")
def changefeed_skip(
    cluster: Cluster,
    tenant: Tenant,
    changefeed_id: FeedId,
    commit_ts: Annotated[int, typer.Option(help="The event's commit_ts, as the error names it.")],
    table: Annotated[str, typer.Option(help="DATABASE.TABLE")],
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")],
    key: Annotated[str | None, typer.Option(help="The raw key of a row event in hex, as the error names it.")] = None,
    ddl_job: Annotated[int | None, typer.Option(help="Or the job id of a DDL.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Leave out one event, which you name. It goes to the topic TOPIC-dead-letter, and is counted."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf
        from tistream_cli.changefeed.changes import SkippedEvent, skip_event
        from tistream_client.cli.api_client import ApiClient

    skip = SkippedEvent(commit_ts, table, key, ddl_job, reason)
    skip_event(ApiClient(url), FeedOf(cluster, tenant, changefeed_id), skip)


@changefeed_app.command("verify")
def changefeed_verify(
    cluster: Cluster,
    tenant: Tenant,
    changefeed_id: FeedId,
    from_ts: Annotated[
        int | None, typer.Option(help="Exclusive. Default: a minute before --to-ts.", parser=parse_ts)
    ] = None,
    to_ts: Annotated[int | None, typer.Option(help="Inclusive. Default: the checkpoint.", parser=parse_ts)] = None,
    table: Annotated[str | None, typer.Option(help="database.table. Default: all.")] = None,
    key_from: Annotated[
        str | None, typer.Option(help="Of topics: the lowest value of the first column of the table's key.")
    ] = None,
    key_to: Annotated[str | None, typer.Option(help="The highest value of it.")] = None,
    repair: Annotated[
        str | None, typer.Option("--repair", metavar="TOPIC", help="Write the events that are missing into this topic.")
    ] = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Compare what the topics, files or tables hold with what the pool has; the exit status is 1 if they differ."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf
        from tistream_cli.changefeed.verify import VerifyRange, verify_feed
        from tistream_client.cli.api_client import ApiClient

    wanted = VerifyRange(from_ts, to_ts, table, repair, key_from, key_to)
    verify_feed(ApiClient(url), FeedOf(cluster, tenant, changefeed_id), wanted, as_json=as_json)


@changefeed_app.command("remove")
def changefeed_remove(
    cluster: Cluster,
    tenant: Tenant,
    changefeed_id: FeedId,
    keep_progress: Annotated[
        bool, typer.Option("--keep-progress", help="The next changefeed of this id continues where this one ends.")
    ] = False,
    no_confirm: NoConfirm = False,  # noqa: ARG001
    url: Url = DEFAULT_URL,
) -> None:
    """Remove a changefeed. What it has written stays in the sink."""
    with importing():
        from tistream_cli.changefeed.changefeed import FeedOf, remove_feed
        from tistream_client.cli.api_client import ApiClient

    remove_feed(ApiClient(url), FeedOf(cluster, tenant, changefeed_id), keep_progress=keep_progress)
