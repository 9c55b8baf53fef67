"""The commands `tistream node …` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Url
from tistream_client.cli.output import new_app

node_app = new_app("Nodes: the processes of the platform.")


@node_app.command("list")
def node_list(url: Url = DEFAULT_URL) -> None:
    """List every process except the meta servers, with its role, state, tasks and stores."""
    with importing():
        from tistream_cli.commands.operate import list_nodes
        from tistream_client.cli.api_client import ApiClient

    list_nodes(ApiClient(url))


@node_app.command("drain")
def node_drain(
    node: Annotated[str, typer.Argument(help="Name of the node, as `node list` shows it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it take tasks and stores again.")] = False,
    wait: Annotated[
        float | None, typer.Option(min=0, help="Wait until it is empty, up to this number of seconds; else status 1.")
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Drain a node: move every task and store off it, and assign none to it until it is restarted."""
    with importing():
        from tistream_cli.commands.operate import drain_node
        from tistream_client.cli.api_client import ApiClient

    drain_node(ApiClient(url), node, not undo, wait)
