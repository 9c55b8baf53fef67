"""Protects a server without authentication against pages in browsers. Pure.

Any client that can connect may do everything, and so could the pages of any site in a browser on this machine. Browsers
state the origin of a request in its headers. A client that sends no such header is not a browser, and is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

_WAY_OUT = "this API server runs without authentication (TISTREAM_API__AUTH=off), for this machine alone"
_ELSEWHERE = frozenset(("cross-site", "same-site"))


def refusal(headers: Mapping[str, str], machine: str) -> str | None:
    """The reason why a request with these headers (lowercase names) is rejected; None if it is accepted. `machine` is
    this machine's host name."""
    host = headers.get("host", "")
    if host and not _of_this_machine(host, machine):
        return f"{_WAY_OUT}: ask it as 127.0.0.1, localhost or {machine}, not as {host[:80]!r}, or switch auth on"
    if headers.get("sec-fetch-site") in _ELSEWHERE or not _own(headers.get("origin"), host):
        return f"{_WAY_OUT}: no page of another site may ask it; open its own at 127.0.0.1, or switch auth on"
    return None


def _of_this_machine(host: str, machine: str) -> bool:
    """Whether a Host header names this machine. Any other name may belong to a site that resolves it to this machine
    (DNS rebinding). That includes names of one label, which the network's search domain may complete."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or name == machine.lower().removesuffix(".")


def _own(origin: str | None, host: str) -> bool:
    return origin is None or origin.partition("://")[2].lower() == host.lower()
