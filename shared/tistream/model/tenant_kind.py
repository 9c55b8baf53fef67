"""The kinds of tenants, by the upstream that their changes come from."""

from __future__ import annotations

from enum import StrEnum


class TenantKind(StrEnum):
    """What the changes of a tenant are. TIDB: rows and schemas of a TiDB. RAW: keys and values of RawKV, from a TiKV
    with API V2; they have no schema."""

    TIDB = "tidb"
    RAW = "raw"
