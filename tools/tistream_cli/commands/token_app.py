"""The commands of `tistream token` and their options."""

# ruff: noqa: PLC0415 - each command imports its modules when it runs

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tistream_client.cli.base_url import DEFAULT_URL
from tistream_client.cli.importing import importing
from tistream_client.cli.options import Url
from tistream_client.cli.output import new_app

token_app = new_app("Tokens: credentials of the API with their grants.")

Out = Annotated[Path | None, typer.Option(help="A new file for the token, readable by you only. Default: stdout.")]


@token_app.command("new")
def token_new(out: Out = None) -> None:
    """Generate a token for the file that TISTREAM_META__FIRST_TOKEN_FILE names, without a call to the API."""
    with importing():
        from tistream_cli.new_token import new_token

    new_token(out)


@token_app.command("create")
def token_create(
    grant: Annotated[
        list[str],
        typer.Option(help="read,push,operate:CLUSTER/TENANT/DATABASE/TABLE; `*` matches any. May be repeated."),
    ],
    label: Annotated[str, typer.Option(help="A description of the token's purpose.")] = "",
    expires: Annotated[str | None, typer.Option(help="Validity period: 90d, 12h, forever (the default).")] = None,
    out: Out = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Create a token. Its grants must lie within the scope that your own token may operate."""
    with importing():
        from tistream_cli.commands.token import create_token
        from tistream_client.cli.api_client import ApiClient

    create_token(ApiClient(url), grant, label, expires, out)


@token_app.command("list")
def token_list(url: Url = DEFAULT_URL) -> None:
    """List the tokens whose grants lie within the scope that your own token may operate."""
    with importing():
        from tistream_cli.commands.token import list_tokens
        from tistream_client.cli.api_client import ApiClient

    list_tokens(ApiClient(url))


@token_app.command("revoke")
def token_revoke(
    token: Annotated[str, typer.Argument(help="Id of the token, as `token list` shows it.")], url: Url = DEFAULT_URL
) -> None:
    """Revoke a token. Streams that use it end within a second."""
    with importing():
        from tistream_cli.commands.token import revoke_token
        from tistream_client.cli.api_client import ApiClient

    revoke_token(ApiClient(url), token)
