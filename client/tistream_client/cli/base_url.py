"""Validates the base URL of the API before a command uses it."""

from __future__ import annotations

import typer

from tistream_client.core.arguments import base_url
from tistream_client.core.errors import WrongArgument

DEFAULT_URL = "http://127.0.0.1:8000"


def checked(url: str | None) -> str | None:
    """Check the value of a Typer option. Returns `url` unchanged. Raises BadParameter if it cannot be a base URL."""
    try:
        return url if url is None else base_url(url) and url
    except WrongArgument as error:
        raise typer.BadParameter(str(error).removeprefix("url ")) from error
