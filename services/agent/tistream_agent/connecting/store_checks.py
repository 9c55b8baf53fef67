"""Asks the TiKV stores that PD lists whether an agent can read from them. checks.py judges what they answer."""

from __future__ import annotations

from collections.abc import Iterator

from tistream.model.tenant_kind import TenantKind
from tistream_agent.connecting.checks import Check, StoreSeen, raw_check, reach_check, version_check
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.raw_api import raw_refusal
from tistream_agent.upstream.stores import Channels, refusal_of


def store_checks(pd: PdClient, channels: Channels, kind: TenantKind, call_s: float) -> Iterator[Check]:
    """Yield the checks of the stores' versions, of the connections to them and, for RawKV, of their API. `call_s`: how
    long a call to a store may take, in seconds. Raises Unavailable if PD does not answer."""
    stores = [
        StoreSeen(store.store_id, store.address, store.version, store.up, refusal_of(channels, store.address, call_s))
        for store in pd.stores()
    ]
    yield version_check(stores, kind)
    yield reach_check(stores)
    if kind is TenantKind.RAW:
        found = {one.store_id: raw_refusal(channels, one.address, pd.cluster_id, call_s) for one in stores}
        yield raw_check(found)
