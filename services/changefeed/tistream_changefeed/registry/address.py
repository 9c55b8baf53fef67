"""Checks the address of a schema registry in a feed's configuration, and fills in its secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from tistream.errors import InvalidRequest
from tistream.secrets.references import filled

_PORTS = {"http": 80, "https": 443}


def host_of(url: str) -> str:
    """The `host:port` of an address. Raises InvalidRequest, whose text shows no part that may be a secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in _PORTS or parts.query or parts.fragment:
        raise InvalidRequest(
            "config: sink.schema-registry is no address: http://HOST:PORT or https://HOST:PORT, with "
            "USER:${secret:NAME}@ before the host if it wants a password",
            {"parameter": "config"},
        )
    return f"{host}:{port or _PORTS[parts.scheme]}"


def with_secrets(url: str, values: Mapping[str, str]) -> str:
    """The address with its references replaced by the values of secrets, percent-encoded."""
    return filled(url, {name: quote(value, safe="") for name, value in values.items()})
