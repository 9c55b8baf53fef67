"""The commands of `tistream` and their options. Each command imports its modules only when it runs, so that `up` need
not wait for the imports of other commands."""

# ruff: noqa: PLC0415

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

import tistream
from tistream_cli import service_caller
from tistream_cli.backfill.backfill_app import backfill_app
from tistream_cli.changefeed.changefeed_app import changefeed_app
from tistream_cli.changefeed.secret_app import secret_app
from tistream_cli.commands.node_app import node_app
from tistream_cli.commands.source_app import source_app
from tistream_cli.commands.store_app import store_app
from tistream_cli.commands.tenant_app import tenant_app
from tistream_cli.commands.token_app import token_app
from tistream_cli.consume.consume_app import add_consume_command
from tistream_cli.restore.restore_app import add_restore_commands
from tistream_client.cli.app import make_app
from tistream_client.cli.base_url import DEFAULT_URL, checked
from tistream_client.cli.bearer import sign_by
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Cluster, Json, Tenant, Url
from tistream_client.cli.output import new_app
from tistream_client.cli.times import FORMS, parse_ts

app = make_app(tistream.__version__)
app.add_typer(tenant_app, name="tenant")
app.add_typer(store_app, name="store")
app.add_typer(source_app, name="source")
app.add_typer(backfill_app, name="backfill")
app.add_typer(changefeed_app, name="changefeed")
app.add_typer(secret_app, name="secret")
app.add_typer(node_app, name="node")
task_app = new_app("Tasks: a tenant's key ranges, each with one sorter.")
app.add_typer(task_app, name="task")
app.add_typer(token_app, name="token")
add_restore_commands(app)
add_consume_command(app)


@app.command()
def up(
    data_dir: Annotated[Path, typer.Option(help="Directory of all data; created if it does not exist.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Public port on 127.0.0.1; 0: any free port.")] = 8000,
    ranges: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Number of key ranges (tasks) of a new tenant.")
    ] = None,
    metas: Annotated[int, typer.Option(min=1, max=9, help="Meta servers; one of them is the owner.")] = 1,
    dispatchers: Annotated[int, typer.Option(min=1, max=16, help="Dispatchers; each store has one of them.")] = 1,
    sorters: Annotated[int, typer.Option(min=1, max=16, help="Sorters, each with a Spark of its own.")] = 1,
    apis: Annotated[int, typer.Option(min=1, max=16, help="API servers; the first has the public port.")] = 1,
    changefeeds: Annotated[int, typer.Option(min=0, max=16, help="Workers that run changefeeds.")] = 1,
    agents: Annotated[
        int | None, typer.Option(min=0, max=16, help="Agents of TiDB clusters. Default: 0, with --connect 1.")
    ] = None,
    connect: Annotated[
        str | None, typer.Option(help="PD of a TiDB cluster, host:2379, that is connected once all are ready.")
    ] = None,
    cluster: Annotated[str, typer.Option(help="With --connect: cluster id of the new tenant.")] = "1",
    tenant: Annotated[str, typer.Option(help="With --connect: its tenant id.")] = "tidb",
    auth: Annotated[
        bool, typer.Option("--auth", help="The API requires tokens; print the path of the first one.")
    ] = False,
) -> None:
    """Run the whole platform on this machine until SIGTERM or Ctrl-C; prints one line when it is ready."""
    with importing():
        from tistream_cli.platform.up import ConnectOption, ProcessCounts, run_up

    agents = (0 if connect is None else 1) if agents is None else agents
    counts = ProcessCounts(
        meta=metas, dispatcher=dispatchers, sorter=sorters, api=apis, changefeed=changefeeds, agent=agents
    )
    upstream = None if connect is None else ConnectOption(connect, cluster, tenant)
    run_up(data_dir, port, ranges, counts, auth=auth, connect=upstream)


@task_app.command("list")
def task_list(url: Url = DEFAULT_URL) -> None:
    """List every task, with its sorter, epoch and phase."""
    with importing():
        from tistream_cli.commands.operate import list_tasks
        from tistream_client.cli.api_client import ApiClient

    list_tasks(ApiClient(url))


@task_app.command("move")
def task_move(
    task: Annotated[int, typer.Argument(help="Id of the task, as `task list` shows it.")],
    node: Annotated[str, typer.Argument(help="Name of the sorter that takes it over.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Move a task to another sorter, once that sorter is ready to take it."""
    with importing():
        from tistream_cli.commands.operate import move_task
        from tistream_client.cli.api_client import ApiClient

    move_task(ApiClient(url), task, node)


@task_app.command("split")
def task_split(
    task: Annotated[int, typer.Argument(help="Id of the task, as `task list` shows it.")],
    key: Annotated[
        str | None, typer.Option(help="The key at which to split, in hexadecimal. Default: in halves by load.")
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Split a task into two child tasks."""
    with importing():
        from tistream_cli.commands.operate import split_task
        from tistream_client.cli.api_client import ApiClient

    split_task(ApiClient(url), task, key)


@task_app.command("merge")
def task_merge(
    task: Annotated[int, typer.Argument(help="Id of a task, as `task list` shows it.")],
    neighbour: Annotated[int, typer.Argument(help="Id of the task whose keys are adjacent.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Merge two neighbouring tasks into one."""
    with importing():
        from tistream_cli.commands.operate import merge_tasks
        from tistream_client.cli.api_client import ApiClient

    merge_tasks(ApiClient(url), task, neighbour)


@app.command()
def audit(
    after: Annotated[
        int | None, typer.Option(min=0, help="Every entry above this number instead of the newest.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Number of newest entries.")] = 50,
    cluster: Annotated[str | None, typer.Option(help="Only entries of one tenant; needs --tenant.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Needs --cluster.")] = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the audit log: changes with the actor, the address, and the old and new values."""
    with importing():
        from tistream_cli.commands.audit import show_audit
        from tistream_client.cli.api_client import ApiClient

    show_audit(ApiClient(url), after, limit, (cluster, tenant), as_json)


@app.command()
def owner(url: Url = DEFAULT_URL) -> None:
    """Print the owner among the meta servers, and its election number."""
    with importing():
        from tistream_cli.commands.operate import show_owner
        from tistream_client.cli.api_client import ApiClient

    show_owner(ApiClient(url))


@app.command("inspect")
def inspect(
    target: Annotated[str, typer.Argument(help="A file or, with --objects, the key of an object.")],
    objects: Annotated[str | None, typer.Option(help="Object store, as file:///data/objects or s3://bucket.")] = None,
    rows: Annotated[int, typer.Option(min=0, help="Rows of data to show.")] = 20,
    as_json: Json = False,
    entries: Annotated[bool, typer.Option("--entries", help="Show the keys that a log backup's slices hold.")] = False,
) -> None:
    """Show a change file, manifest, segment, pending part, schema log or schema_snap; or, by its URL, a metadata object
    of a TiKV log backup."""
    with importing():
        from tistream_cli.commands.inspect import run_inspect

    run_inspect(target, objects, rows, as_json, with_entries=entries)


@app.command()
def verify(
    url: Annotated[str, typer.Argument(help="Base URL of the API.", callback=checked)],
    cluster: Cluster,
    tenant: Tenant,
    truth: Annotated[
        Path | None, typer.Option(help="The upstream's truth file, one line per ts; read as it grows.")
    ] = None,
    start_ts: Annotated[
        int | None, typer.Option(help=f"Begin after: {FORMS}. Default: the tenant's beginning.", parser=parse_ts)
    ] = None,
    until_truth_end: Annotated[
        bool, typer.Option("--until-truth-end", help="End when the truth is idle for 10 s and everything was compared.")
    ] = False,
    duration: Annotated[float | None, typer.Option(min=1, help="End after this number of seconds.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed for cuts, limits, names and windows.")] = 0,
    scopes: Annotated[int, typer.Option(min=0, max=64, help="Number of consumers of random tables and databases.")] = 2,
    samples: Annotated[Path | None, typer.Option(help="Write the lag four times a second to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Pull a tenant with several consumers, and check every guarantee of the API.

    Status 1: a violation. Status 3: no verdict (the run could not begin, or not everything was compared).

    Without --duration or --until-truth-end, it runs until SIGTERM or Ctrl-C.
    """
    if until_truth_end and truth is None:
        raise typer.BadParameter("needs --truth", param_hint="--until-truth-end")
    with importing():
        from tistream_cli.verify.verify import VerifyOptions, run_verify

    options = VerifyOptions(url, cluster, tenant, truth, start_ts, duration, until_truth_end)
    run_verify(replace(options, seed=seed, scopes=scopes, samples=samples, as_json=as_json))


@app.command()
def demo(
    golden: Annotated[Path, typer.Option(help="A recorded change set (its objects/ and arrival.jsonl).")],
    data_dir: Annotated[Path, typer.Option(help="The platform's data directory; emptied first.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Public port; 0: any free port.")] = 0,
) -> None:
    """Start the platform, push a recorded TiDB change set in real time, and show the events and their lag."""
    with importing():
        from tistream_cli.platform.demo import DemoOptions, run_demo

    run_demo(DemoOptions(golden, data_dir, port))


@app.command("demo-restore")
def demo_restore(
    golden: Annotated[Path, typer.Option(help="The recorded change set `large`.")],
    data_dir: Annotated[Path, typer.Option(help="The demo's data directory; emptied first.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Public port; 0: any free port.")] = 0,
) -> None:
    """Find an UPDATE that changed most of a recorded table, and undo it in a MariaDB; needs mariadbd."""
    with importing():
        from tistream_cli.platform.demo_restore import DemoRestoreOptions, run_demo_restore

    run_demo_restore(DemoRestoreOptions(golden, data_dir, port))


@app.command("demo-connect")
def demo_connect(
    golden: Annotated[Path, typer.Option(help="The recorded change set `everything`.")],
    changes: Annotated[Path, typer.Option(help="The change streams of its TiKVs, as they were recorded.")],
    data_dir: Annotated[Path, typer.Option(help="The demo's data directory; emptied first.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Public port; 0: any free port.")] = 0,
) -> None:
    """Connect an emulated TiDB cluster whose TiKVs are unmodified, and show its events and their lag."""
    with importing():
        from tistream_cli.platform.demo_connect import DemoConnectOptions, run_demo_connect

    run_demo_connect(DemoConnectOptions(golden, changes, data_dir, port))


@app.command("demo-kafka")
def demo_kafka(
    golden: Annotated[Path, typer.Option(help="A recorded change set (its objects/ and arrival.jsonl).")],
    data_dir: Annotated[Path, typer.Option(help="The demo's data directory; emptied first.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Public port; 0: any free port.")] = 0,
) -> None:
    """Write the changes of a recorded TiDB into a Kafka, and read them with Kafka's console consumer; needs mvn
    once."""
    with importing():
        from tistream_cli.platform.demo_kafka import DemoKafkaOptions, run_demo_kafka

    run_demo_kafka(DemoKafkaOptions(golden, data_dir, port))


def load_commands() -> None:
    """Set how commands in a service's container sign their requests. Then add the commands of services that are
    installed beside this library, such as `tistream agent`. The library does not import services by itself."""
    sign_by(service_caller.signing)
    for entry in sorted(entry_points(group="tistream.commands"), key=lambda entry: entry.name):
        entry.load()(app)
