"""Finds the keys of a cluster that belong to a tenant, from its kind and the name of its keyspace."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.errors import InvalidRequest
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream_agent.core.keys import TIDB_GAP, TIDB_SCOPE, KeyMap, raw_scope
from tistream_agent.upstream.pd import NULL_KEYSPACE, PdClient

EVERY = "*"  # in place of a name: all keyspaces of RawKV


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """The keys of a tenant, and the keyspace whose garbage collection must be held back for them."""

    keys: KeyMap
    held: int


def check_span(keys: KeyMap, span: KeySpan) -> None:
    """Check that a territory begins and ends at keys that the tenant may have, or is unbounded there. Otherwise its
    agent could state nothing of the other keys. Raises InvalidRequest."""
    wire = keys.on_wire(span)
    if wire is None or keys.in_platform(wire) != span:
        raise InvalidRequest(
            f"the territory's keys from {span.start.hex() or 'the first'} to {span.end.hex() or 'the last'} do not "
            f"begin and end between {keys.scope.start.hex()} and {keys.scope.end.hex()}, where the tenant's keys are: "
            "create it with other bounds, and leave the first one of the tenant without a start and the last one "
            "without an end"
        )


def tenant_keys(pd: PdClient, kind: TenantKind, keyspace: str) -> TenantKeys:
    """Find the keys of a tenant. `keyspace` is the keyspace's name; empty for TiDB without keyspaces, or for RawKV's
    keyspace 0. Raises InvalidRequest if PD has no such keyspace, and Unavailable."""
    if kind is TenantKind.RAW and keyspace in ("", EVERY):
        return TenantKeys(KeyMap(scope=raw_scope(0 if not keyspace else None)), NULL_KEYSPACE)
    if not keyspace:
        return TenantKeys(KeyMap(scope=TIDB_SCOPE, gap=TIDB_GAP), NULL_KEYSPACE)
    found = pd.keyspace(keyspace)
    if kind is TenantKind.RAW:
        return TenantKeys(KeyMap(scope=raw_scope(found)), found)
    return TenantKeys(KeyMap(b"x" + found.to_bytes(3, "big"), TIDB_SCOPE, TIDB_GAP), found)
