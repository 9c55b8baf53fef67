"""The commands `tistream agent`, `tistream connect` and `tistream disconnect`, and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tistream.model.ids import TenantKey
from tistream.model.tenant_kind import TenantKind
from tistream_agent.replay.command import replay

if TYPE_CHECKING:
    from tistream_agent.connecting.connect import Connector

agent_app = typer.Typer(no_args_is_help=True, help="The agent: reads the changes of an unmodified TiDB from TiKV.")

Pd = Annotated[str, typer.Option(help="Addresses of PD, host:2379, separated by commas.")]
Cluster = Annotated[str, typer.Option(help="Upstream cluster id of the tenant.")]
Tenant = Annotated[str, typer.Option(help="Upstream tenant id.")]
Objects = Annotated[str, typer.Option(help="Object store of the platform: /path, file:///path or s3://bucket.")]
Territory = Annotated[int, typer.Option(min=1, help="Id of the territory, which is the store id of its files.")]
Keyspace = Annotated[
    str, typer.Option(help="Name of the keyspace; with --kind raw also *, for all. Default: none, or 0.")
]
Kind = Annotated[TenantKind, typer.Option(help="tidb, or raw: the changes of RawKV (API V2).")]
Ca = Annotated[Path | None, typer.Option(help="Authority of the certificates of PD and TiKV.")]
Cert = Annotated[Path | None, typer.Option(help="Client certificate that PD and TiKV accept.")]
Key = Annotated[Path | None, typer.Option(help="Private key of the client certificate.")]
CallTimeout = Annotated[
    float, typer.Option(min=0.1, help="Seconds that a call to PD or TiKV may take.", envvar="TISTREAM_CALL_TIMEOUT")
]
DataDir = Annotated[Path | None, typer.Option(help="Accepted, and not used: an agent keeps nothing on disk.")]
Url = Annotated[str, typer.Option(help="Base URL of the API.", envvar="TISTREAM_URL")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port of the agent's /status on 127.0.0.1.")]

_PREFIX = "TISTREAM_AGENT__"


def register(app: typer.Typer) -> None:
    """Add the agent's commands to the application."""
    app.add_typer(agent_app, name="agent")
    app.command("connect")(connect)
    app.command("disconnect")(disconnect)
    app.command("replay")(replay)


@agent_app.command("run")
def agent_run(
    pd: Annotated[str | None, typer.Option(help="Addresses of PD. Default: TISTREAM_AGENT__PD.")] = None,
    objects: Annotated[str | None, typer.Option(help="Object store. Default: TISTREAM_AGENT__OBJECTS_URL.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the API to announce files to.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Upstream cluster id of the tenant.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Upstream tenant id.")] = None,
    territory: Annotated[
        str | None, typer.Option(help="Id of the territory; all: the only one, with every key (id 1).")
    ] = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of /status. Default: 8007.")] = None,
    data_dir: DataDir = None,  # noqa: ARG001
) -> None:
    """Run an agent until SIGTERM. An option replaces the setting of the same name in the environment
    (docs/agent.md)."""
    given = {
        "PD": pd,
        "OBJECTS_URL": objects,
        "API_URL": url,
        "CLUSTER": cluster,
        "TENANT": tenant,
        "TERRITORY": None if territory is None else territory.replace("all", "1"),
        "UPSTREAM_TLS__CA_FILE": ca,
        "UPSTREAM_TLS__CERT_FILE": cert,
        "UPSTREAM_TLS__KEY_FILE": key,
        "PORT": port,
    }
    os.environ.update({_PREFIX + name: str(value) for name, value in given.items() if value is not None})
    from tistream_agent.__main__ import main

    main()


@agent_app.command("status")
def agent_status(port: Port = 8007) -> None:
    """Print what the agent on this machine does, as JSON. Status 1 if its territory does not run."""
    import httpx

    with _one_line():
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/status", timeout=10, trust_env=False)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise _NoAnswer(f"no agent answers on 127.0.0.1:{port}: {error}") from error
        typer.echo(answer.text)
        states = [territory["state"] for territory in answer.json()["territories"]]
        if any(state != "running" for state in states):
            raise typer.Exit(1)


def connect(
    pd: Pd,
    objects: Objects,
    cluster: Cluster,
    tenant: Tenant,
    url: Annotated[str, typer.Option(help="Base URL of the API.", envvar="TISTREAM_URL")] = "http://127.0.0.1:8000",
    territory: Territory = 1,
    keyspace: Keyspace = "",
    kind: Kind = TenantKind.TIDB,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    call_timeout: CallTimeout = 5,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check; change nothing.")] = False,
    assign: Annotated[
        bool, typer.Option("--assign", help="Give the keys to the platform's agents, in place of one of their own.")
    ] = False,
    in_place_of: Annotated[
        list[int] | None,
        typer.Option(min=1, help="With --assign: id of a territory with a damaged chain, whose keys new ones take."),
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Then run the agent in the foreground.")] = False,
    manifest: Annotated[str | None, typer.Option(help="Print instead of the command: compose or kubernetes.")] = None,
) -> None:
    """Check a TiDB cluster, store its schema, register it as a tenant, and print how to run its agent."""
    from tistream_agent.connecting.assigning import assign as assign_keys
    from tistream_agent.connecting.manifests import command_line, compose_service, kubernetes_manifest
    from tistream_agent.connecting.platform import PlatformApi, TenantTerritories

    if manifest not in (None, "compose", "kubernetes"):
        raise typer.BadParameter(f"--manifest {manifest} is not known: give compose or kubernetes")
    if in_place_of and not assign:
        raise typer.BadParameter("--in-place-of goes with --assign")
    with _one_line():
        connector = _connector(
            pd, objects, cluster, tenant, url, territory, keyspace, kind, (ca, cert, key), call_timeout, look=dry_run
        )
        cluster_id = connector.check()
        if dry_run:
            return
        of, api = TenantKey.parse(cluster, tenant), PlatformApi(url, _api_token())
        territories = TenantTerritories(api, of, pd, cluster_id, kind, keyspace)
        if assign:
            its = (pd, objects, cluster, tenant, "")
            assign_keys(
                connector,
                territories,
                in_place_of or [],
                lambda number: _connector(*its, number, keyspace, kind, (ca, cert, key), call_timeout).disconnect(),
            )
            typer.echo("the platform's agents take them over: `tistream agent list` shows which")
            return
        connector.connect()
        connector.undivided()
    given = {
        "PD": pd,
        "PD_CLUSTER_ID": str(cluster_id),
        "CLUSTER": cluster,
        "TENANT": tenant,
        "TERRITORY": str(territory),
        "OBJECTS_URL": objects,
        "API_URL": url,
        "KIND": "" if kind is TenantKind.TIDB else kind.value,
        "KEYSPACE": keyspace,
        "UPSTREAM_TLS__CA_FILE": str(ca or ""),
        "UPSTREAM_TLS__CERT_FILE": str(cert or ""),
        "UPSTREAM_TLS__KEY_FILE": str(key or ""),
    }
    environ = {_PREFIX + name: value for name, value in given.items() if value}
    if start:
        os.environ.update(environ)
        from tistream_agent.__main__ import main

        main()
    elif manifest == "compose":
        typer.echo(compose_service(environ), nl=False)
    elif manifest == "kubernetes":
        typer.echo(kubernetes_manifest(environ, f"agent-{territory}"), nl=False)
    else:
        typer.echo(command_line(environ))


def disconnect(
    pd: Pd,
    objects: Objects,
    cluster: Cluster,
    tenant: Tenant,
    territory: Annotated[
        int | None, typer.Option(min=1, help="Id of the territory. Default: all that the platform has, or 1.")
    ] = None,
    keyspace: Keyspace = "",
    kind: Kind = TenantKind.TIDB,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    call_timeout: CallTimeout = 5,
    url: Annotated[
        str, typer.Option(help="Base URL of the API, if agents of the platform have the keys.", envvar="TISTREAM_URL")
    ] = "",
) -> None:
    """End the reading of a tenant's keys: take them from the agents, end the chain of files for good, and let the
    cluster collect garbage again.

    The tenant and its rows stay. An agent that serves the territory ends. `tistream connect` continues where the chain
    ended, while the cluster still has the history.
    """
    from tistream_agent.connecting.disconnecting import disconnect as end_territories
    from tistream_agent.connecting.platform import PlatformApi, check_same

    with _one_line():
        of, api = TenantKey.parse(cluster, tenant), PlatformApi(url, _api_token())
        found = api.territories(of) if url else {}
        check_same(found, kind, keyspace)

        def connector(number: int) -> Connector:
            return _connector(pd, objects, cluster, tenant, "", number, keyspace, kind, (ca, cert, key), call_timeout)

        remove = partial(api.remove_territory, of) if url else None
        end_territories(connector, territory, found, remove)


@agent_app.command("list")
def agent_list(url: Url = "http://127.0.0.1:8000") -> None:
    """List the platform's agents, with their territories, the lag of each, and what its slowest keys wait for."""
    from tistream_agent.connecting.platform import PlatformApi, agent_rows, as_table

    with _one_line():
        rows = agent_rows(*PlatformApi(url, _api_token()).agents())
    typer.echo(as_table([("agent", "is", "tenant", "territory", "state", "lag", "waits for"), *rows]))


@agent_app.command("drain")
def agent_drain(
    node: Annotated[str, typer.Argument(help="Name of the agent, as `agent list` shows it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it take territories again.")] = False,
    url: Url = "http://127.0.0.1:8000",
) -> None:
    """Move all territories off an agent. It gets no new ones until `--undo`."""
    from tistream_agent.connecting.platform import PlatformApi

    with _one_line():
        PlatformApi(url, _api_token()).drain(node, draining=not undo)
    typer.echo(f"agent {node} takes territories again" if undo else f"agent {node} is being drained")


@agent_app.command("divide")
def agent_divide(
    pd: Pd,
    objects: Objects,
    cluster: Cluster,
    tenant: Tenant,
    territory: Annotated[list[int], typer.Option(min=1, help="Id of a territory. Repeat it for neighbours to merge.")],
    into: Annotated[int, typer.Option(min=1, max=64, help="Number of new territories in their place.")] = 2,
    keyspace: Keyspace = "",
    kind: Kind = TenantKind.TIDB,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    call_timeout: CallTimeout = 5,
    url: Url = "http://127.0.0.1:8000",
) -> None:
    """Split a territory of the platform's agents, or merge neighbours (--into 1), while they are read.

    No change is lost or repeated. An interrupted command is finished by running it again. The store of an old territory
    stays: run `tistream store retire` for it once its files are read.
    """
    from tistream.concurrency import sleep
    from tistream.service.ids import random_id
    from tistream.storage.open import open_objects
    from tistream_agent.connecting.checks import table
    from tistream_agent.connecting.divider import Divider
    from tistream_agent.connecting.platform import PlatformApi, TenantTerritories
    from tistream_agent.order import addresses
    from tistream_agent.upstream.keyspaces import tenant_keys
    from tistream_agent.upstream.pd import PdClient
    from tistream_agent.upstream.stores import Channels, TlsFiles

    with _one_line():
        of, channels = TenantKey.parse(cluster, tenant), Channels(TlsFiles(ca, cert, key))
        client = PdClient(addresses(pd), channels, deadline_s=call_timeout)
        Divider(
            of,
            tenant_keys(client, kind, keyspace),
            client,
            open_objects(objects),
            TenantTerritories(PlatformApi(url, _api_token()), of, pd, client.cluster_id, kind, keyspace),
            sleep,
            lambda check: typer.echo(table([check]), err=True),
            random_id(),
        ).divide(sorted(set(territory)), into)


_AGAIN = 75  # the same command may succeed later, as of the commands of tistream_client


class _Failed(Exception):
    """The command has failed: it prints one line on stderr, and ends with exit status 1."""


class _NoAnswer(_Failed):
    """An agent did not answer: the exit status is _AGAIN."""


@contextmanager
def _one_line() -> Iterator[None]:
    from tistream.errors import TiStreamError, Unavailable
    from tistream_agent.connecting.checks import FailedCheck

    try:
        yield
    except FailedCheck as error:  # its line is on stderr already
        sys.stderr.write("tistream: a check has failed (NO); nothing after it was done\n")
        raise typer.Exit(_AGAIN if error.later else 1) from None
    except (TiStreamError, _Failed) as error:
        sys.stderr.write(f"tistream: {error}\n")
        raise typer.Exit(_AGAIN if isinstance(error, (Unavailable, _NoAnswer)) else 1) from None


def _connector(
    pd: str,
    objects: str,
    cluster: str,
    tenant: str,
    url: str,
    territory: int,
    keyspace: str,
    kind: TenantKind,
    tls: tuple[Path | None, Path | None, Path | None],
    call_s: float,
    look: bool = False,
) -> Connector:
    """The parts of the command. `look`: it changes nothing, and so creates no directory of objects."""
    from tistream.concurrency import sleep
    from tistream.service.ids import random_id
    from tistream.storage.open import open_objects, open_unchanged
    from tistream_agent.connecting.checks import table
    from tistream_agent.connecting.connect import Connection, Connector
    from tistream_agent.connecting.platform import PlatformApi
    from tistream_agent.order import addresses
    from tistream_agent.upstream.pd import PdClient
    from tistream_agent.upstream.stores import Channels, TlsFiles

    channels, api = Channels(TlsFiles(*tls)), PlatformApi(url, _api_token())
    return Connector(
        Connection(TenantKey.parse(cluster, tenant), territory, keyspace, kind, call_s=call_s),
        PdClient(addresses(pd), channels, deadline_s=call_s),
        channels,
        (open_unchanged if look else open_objects)(objects),
        lambda new: api.register(new, kind),
        api.reached_ts,
        sleep,
        lambda check: typer.echo(table([check]), err=True),
        random_id(),
    )


def _api_token() -> dict[str, str]:
    """The `Authorization` header with the API token from the environment variables that all commands use."""
    path, text = os.environ.get("TISTREAM_TOKEN_FILE"), os.environ.get("TISTREAM_TOKEN", "").strip()
    if path:
        try:
            text = Path(path).read_text("utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise _Failed(f"token file {path} cannot be read: {error}") from error
    return {"authorization": f"Bearer {text}"} if text else {}
