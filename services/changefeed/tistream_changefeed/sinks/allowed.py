"""Checks the addresses that feeds may write to: a tenant must not reach the platform's own network, or its object
storage. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from tistream.errors import TargetNotAllowed

ANY = "*"


def check_hosts(brokers: Iterable[str], allowed: Sequence[str]) -> None:
    """Check that each broker (`host:port`) of a sink is in the operator's list `allowed`, with or without its port, or
    that the list has `*`. Raises TargetNotAllowed if one is not."""
    for broker in brokers:
        host = broker.rpartition(":")[0]
        if not {ANY, host, broker} & set(allowed):
            names = ", ".join(allowed) or "none"
            raise TargetNotAllowed(
                f"feeds may not write to {broker}; TISTREAM_CHANGEFEED__SINK_HOSTS of the workers allows: {names}"
            )


def storage_url(url: str, allowed: Sequence[str]) -> str:
    """The URL to open for files that a feed puts at `url`, which lies at or below an entry of the operator's list. The
    entry's options (endpoint, region) are used: a tenant cannot set options. Raises TargetNotAllowed."""
    place = url.rstrip("/")
    steps = unquote(place.partition("://")[2]).split("/")[1:]
    plain = not any(char in url for char in "?#@\\") and "" not in steps and not {".", ".."} & set(steps)
    for entry in allowed if plain else ():
        base, mark, options = entry.partition("?")
        base = base.rstrip("/")
        if place == base or place.startswith(f"{base}/"):
            return place + mark + options
    reason = "" if plain else ", and such a place has no options, no user and no `..`"
    names = ", ".join(entry.partition("?")[0] for entry in allowed) or "none"
    raise TargetNotAllowed(
        f"feeds may not put files at {url.partition('?')[0].rpartition('@')[2][:200]}; "
        f"TISTREAM_CHANGEFEED__CLAIM_CHECK_URLS of the workers allows: {names}{reason}"
    )
