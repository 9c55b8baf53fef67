"""Which hosts feeds may write to: a tenant must not reach the platform's own network. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tistream.errors import TargetNotAllowed

ANY = "*"


def check_hosts(brokers: Iterable[str], allowed: Sequence[str]) -> None:
    """Check the brokers (`host:port`) of a sink against the operator's list. Raises TargetNotAllowed."""
    for broker in brokers:
        host = broker.rpartition(":")[0]
        if not {ANY, host, broker} & set(allowed):
            names = ", ".join(allowed) or "none"
            raise TargetNotAllowed(
                f"feeds may not write to {broker}; TISTREAM_CHANGEFEED__SINK_HOSTS of the workers allows: {names}"
            )
