"""The commands of `tistream` that need nothing but the API. Each imports its modules only when it runs."""

# ruff: noqa: PLC0415 - and no postponed annotations, because those of `root` name a local function

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import tistream_client
from tistream_client.cli import trust
from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.errors import TOKEN, TOKEN_FILE
from tistream_client.cli.importing import importing
from tistream_client.cli.local.context_app import context_app
from tistream_client.cli.local.contexts import CONTEXT, FILES, Contexts, at_url, defaults, names, path_of, tenant_of
from tistream_client.cli.options import CLUSTER, TENANT, Url
from tistream_client.cli.output import new_app
from tistream_client.cli.points.points_app import add_commands
from tistream_client.cli.pull.pull_app import pull, tail


def make_app(version: str) -> typer.Typer:
    """The application with the client's commands. `version` is what `--version` prints."""

    def print_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"tistream {version}")
            raise typer.Exit

    app = new_app("A change-data platform for TiDB.")

    @app.callback()
    def root(
        ctx: typer.Context,
        version: Annotated[  # noqa: ARG001
            bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
        ] = False,
        context: Annotated[
            str | None,
            typer.Option(
                envvar=CONTEXT, autocompletion=names, help="Use this context. Default: that of `context use`."
            ),
        ] = None,
        token_file: Annotated[
            Path | None,
            typer.Option(envvar=TOKEN_FILE, help=f"A file with the API token; without it, ${TOKEN} is used."),
        ] = None,
        ca_file: Annotated[
            Path | None,
            typer.Option(envvar=trust.CA_FILE, help="CA of the API's certificate. Default: those the system trusts."),
        ] = None,
        cert_file: Annotated[
            Path | None, typer.Option(envvar=trust.CERT_FILE, help="Client certificate, if the API requires one.")
        ] = None,
        key_file: Annotated[Path | None, typer.Option(envvar=trust.KEY_FILE, help="The certificate's key.")] = None,
    ) -> None:
        """A change-data platform for TiDB."""
        values = {} if ctx.invoked_subcommand == "context" else Contexts(path_of(os.environ)).values(context)
        ctx.default_map = defaults(ctx.command, values)
        stored: dict[str, str] = {}
        for name, given in zip(FILES, (token_file, ca_file, cert_file, key_file), strict=True):
            remember(name, given, None)
            if given is None and name in values:
                stored[name] = values[name]
        at_url(ctx.command, lambda url: _remember_stored(stored, values.get("url"), url))

    app.add_typer(context_app, name="context")
    app.command()(pull)
    app.command()(tail)
    add_commands(app)
    app.command()(ts)
    app.command()(doctor)
    return app


def remember(name: str, given: Path | None, stored: str | None) -> None:
    """Store the path `given`, of an option, or else `stored`, of a context, in the environment variable of `name`,
    where this process and its children read it. `stored` is ignored for the token file if the environment has a token.
    None: there is no such path."""
    variable = f"TISTREAM_{name.upper()}"
    if given is not None:
        os.environ[variable] = str(given)
    elif stored is not None and not (name == FILES[0] and os.environ.get(TOKEN)):
        os.environ[variable] = stored


def _remember_stored(stored: Mapping[str, str], of: str | None, url: str) -> None:
    if of is None or of.rstrip("/") == url.rstrip("/"):
        for name, path in stored.items():
            remember(name, None, path)


def ts(
    times: Annotated[
        list[str], typer.Argument(help="TSO or times: 470596577375551488, 15m, now, 2026-11-21T10:00:00+01:00.")
    ],
) -> None:
    """Turn TSO into times, and times into TSO."""
    with importing():
        from tistream_client.cli.local.show_ts import show_ts

    show_ts(times)


def doctor(
    ctx: typer.Context,
    cluster: Annotated[str | None, typer.Option(help="Also look at this tenant.", envvar=CLUSTER)] = None,
    tenant: Annotated[str | None, typer.Option(help="Also look at this tenant.", envvar=TENANT)] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Look for what is wrong: the API, tokens, clocks, versions, every service, and a tenant.

    Prints what to do about each fault. Status 1: there is one.
    """
    with importing():
        from tistream_client.cli.api_client import ApiClient
        from tistream_client.cli.doctor import run_doctor

    run_doctor(ApiClient(url, read_seconds=10), cluster, tenant_of(ctx, cluster, tenant))


app = make_app(tistream_client.__version__)
