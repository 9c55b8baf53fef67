"""The commands of `tistream token` and their options."""

# ruff: noqa: PLC0415 - each imports what it runs when it runs

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tistream.cli.base_url import DEFAULT_URL, checked
from tistream.cli.importing import importing

token_app = typer.Typer(no_args_is_help=True, help="Tokens: who may do what at the API.")

Url = Annotated[str, typer.Option(help="Base URL of the API.", envvar="TISTREAM_URL", callback=checked)]
Out = Annotated[Path | None, typer.Option(help="A new file for the token, which only you may read. Without: stdout.")]


@token_app.command("new")
def token_new(out: Out = None) -> None:
    """A fresh token for the file that TISTREAM_META__FIRST_TOKEN_FILE names: nobody is asked."""
    with importing():
        from tistream.cli.new_token import new_token

    new_token(out)


@token_app.command("create")
def token_create(
    grant: Annotated[
        list[str],
        typer.Option(help="read,push,operate:CLUSTER/TENANT/DATABASE/TABLE; `*` is any. May be repeated."),
    ],
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    expires: Annotated[str | None, typer.Option(help="How long it is valid: 90d, 12h, forever (the default).")] = None,
    out: Out = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Make a token, within what your own may operate."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.token import create_token

    create_token(ApiClient(url), grant, label, expires, out)


@token_app.command("list")
def token_list(url: Url = DEFAULT_URL) -> None:
    """The tokens that your own could have made."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.token import list_tokens

    list_tokens(ApiClient(url))


@token_app.command("revoke")
def token_revoke(
    token: Annotated[str, typer.Argument(help="Id of the token, as `token list` has it.")], url: Url = DEFAULT_URL
) -> None:
    """Let nobody in by it any more; streams of it end within a second."""
    with importing():
        from tistream.cli.client import ApiClient
        from tistream.cli.token import revoke_token

    revoke_token(ApiClient(url), token)
