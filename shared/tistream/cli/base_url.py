"""The form of a base URL, checked before anything is done with it."""

from __future__ import annotations

import typer

from tistream.cli.importing import importing

DEFAULT_URL = "http://127.0.0.1:8000"


def checked(url: str | None) -> str | None:
    """A Typer callback: `url` as it came. Raises BadParameter where no request could ever be sent."""
    if url is not None and (fault := fault_of(url)) is not None:
        raise typer.BadParameter(f"{url!r} {fault}: it should look like http://127.0.0.1:8000")
    return url


def fault_of(url: str) -> str | None:
    """What is wrong with a base URL, in words; None if nothing is."""
    with importing():
        from httpx import URL, InvalidURL  # noqa: PLC0415 - a quarter of a second, which `tistream up` has no use for

    try:
        parsed = URL(url)
    except InvalidURL as error:
        return f"is no URL ({error})"
    if parsed.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not parsed.host:
        return "names no host"
    return "has more than a path behind the host" if parsed.query or parsed.fragment else None
