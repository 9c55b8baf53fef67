"""What a tenant's changes are: those of a TiDB, or those of RawKV."""

from __future__ import annotations

from enum import StrEnum


class TenantKind(StrEnum):
    """TIDB: rows and schemas of a TiDB. RAW: keys and values of RawKV of a TiKV with API V2, which has no schema."""

    TIDB = "tidb"
    RAW = "raw"
