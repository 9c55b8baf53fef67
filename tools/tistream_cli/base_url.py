"""Validates the base URL of the API before a command uses it."""

from __future__ import annotations

import typer

from tistream_cli.importing import importing

DEFAULT_URL = "http://127.0.0.1:8000"


def checked(url: str | None) -> str | None:
    """Check the value of a Typer option. Returns `url` unchanged. Raises BadParameter if it cannot be a base URL."""
    if url is not None and (fault := fault_of(url)) is not None:
        raise typer.BadParameter(f"{url!r} {fault}: it should look like http://127.0.0.1:8000")
    return url


def fault_of(url: str) -> str | None:
    """The reason why a base URL is invalid; None if it is valid."""
    with importing():
        from httpx import URL, InvalidURL  # noqa: PLC0415 - takes a quarter of a second, which `tistream up` saves

    try:
        parsed = URL(url)
    except InvalidURL as error:
        return f"is not a URL ({error})"
    if parsed.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not parsed.host:
        return "names no host"
    return "has a query or fragment" if parsed.query or parsed.fragment else None
