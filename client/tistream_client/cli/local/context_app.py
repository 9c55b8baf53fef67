"""The commands of `tistream context` and their options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tistream_client.cli.base_url import checked
from tistream_client.cli.local.contexts import MEMBERS, Contexts, names, path_of
from tistream_client.cli.output import new_app, say, show_list

context_app = new_app("Contexts: named sets of URL, cluster, tenant and credentials.")
Name = Annotated[str, typer.Argument(help="Name of the context.", autocompletion=names)]


def _contexts() -> Contexts:
    return Contexts(path_of(os.environ))


@context_app.command("add")
def context_add(
    name: Name,
    url: Annotated[str | None, typer.Option(help="Base URL of the API.", callback=checked)] = None,
    cluster: Annotated[str | None, typer.Option(help="Upstream cluster id.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Upstream tenant id.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file with the API token.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="CA of the API's certificate.")] = None,
    cert_file: Annotated[Path | None, typer.Option(help="Client certificate.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
) -> None:
    """Store a context, or replace one of the same name. The first one is used at once."""
    files = (None if file is None else str(file.absolute()) for file in (token_file, ca_file, cert_file, key_file))
    given = zip(MEMBERS, (url, cluster, tenant, *files), strict=True)
    values = {member: value for member, value in given if value is not None}
    contexts = _contexts()
    contexts.add(name, values)
    used = contexts.current == name
    say(f"context {name} stored{', and in use' if used else ''}", {"context": name, "current": used, **values})


@context_app.command("use")
def context_use(
    name: Annotated[
        str | None, typer.Argument(help="Name of the context. Default: none is used.", autocompletion=names)
    ] = None,
) -> None:
    """Use a context in later commands, where neither an option nor the environment says otherwise."""
    _contexts().use(name)
    say(f"context {name} is in use" if name else "no context is in use", {"current": name})


@context_app.command("list")
def context_list() -> None:
    """List the contexts; `*` marks the one in use."""
    contexts = _contexts()
    items = [{"context": name, "current": name == contexts.current, **one} for name, one in contexts.all.items()]
    rows = [
        ("*" if name == contexts.current else "", name, *(one.get(member, "-") for member in MEMBERS[:4]))
        for name, one in contexts.all.items()
    ]
    show_list("contexts", items, ("", "context", *MEMBERS[:4]), rows)


@context_app.command("remove")
def context_remove(name: Name) -> None:
    """Remove a context."""
    _contexts().remove(name)
    say(f"context {name} removed", {"context": name})
