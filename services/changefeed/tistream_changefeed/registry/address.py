"""Checks the address of a schema registry in a feed's configuration, and fills in its secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from tistream.errors import InvalidRequest
from tistream.secrets.references import filled

_PORTS = {"http": 80, "https": 443}


def host_of(url: str) -> str:
    """Return the `host:port` of a registry's URL, with the default port of its scheme. Raises InvalidRequest if it is
    not an http or https URL, or has a query or fragment; the error shows no part of the URL."""
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
    """Replace each reference `${secret:NAME}` in a registry's URL by the value of that secret, percent-encoded.
    `values` has the values by name."""
    return filled(url, {name: quote(value, safe="") for name, value in values.items()})
