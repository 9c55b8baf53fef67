"""Reads TiStream: the changes of a TiDB as events, as Arrow and as DataFrames, and its rows as of any time.

from tistream_client import TiStream

orders = TiStream("http://127.0.0.1:8000").tenant("7", "acme").table("shop", "orders")
orders.changes(since="10m").to_polars()
orders.at("2026-11-20T14:03:00Z").to_polars()
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tistream_client.checkpoint import Checkpoint, FileCheckpoint
from tistream_client.core.errors import (
    ApiError,
    BadRequest,
    CheckpointMoved,
    Conflict,
    Forbidden,
    Gone,
    NoAnswer,
    NotSupported,
    SchemaChanged,
    ServerError,
    TiStreamError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    Undecodable,
    UnknownName,
    WrongArgument,
)
from tistream_client.core.events import (
    ArrowPage,
    DdlEvent,
    Event,
    Page,
    Position,
    RawEvent,
    RawPage,
    Row,
    RowEvent,
    TableInfo,
    TenantStatus,
    Transaction,
    Version,
)
from tistream_client.core.times import TimeLike
from tistream_client.core.ts import to_datetime, to_ts
from tistream_client.sql_checkpoint import SqlCheckpoint
from tistream_client.sync.client import Table, Tenant, TiStream
from tistream_client.sync.raw_reads import RawChanges
from tistream_client.sync.reads import Changes, Rows

if TYPE_CHECKING:
    from tistream_client.aio.client import AsyncTable, AsyncTenant, AsyncTiStream
    from tistream_client.aio.raw_reads import AsyncRawChanges
    from tistream_client.aio.reads import AsyncChanges, AsyncRows
else:

    def __getattr__(name: str) -> object:
        """Import the client for asyncio when it is first used: asyncio takes half of the time of an import."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        reads = {"AsyncChanges": "reads", "AsyncRows": "reads", "AsyncRawChanges": "raw_reads"}
        return getattr(import_module(f"tistream_client.aio.{reads.get(name, 'client')}"), name)


__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "ArrowPage",
    "AsyncChanges",
    "AsyncRawChanges",
    "AsyncRows",
    "AsyncTable",
    "AsyncTenant",
    "AsyncTiStream",
    "BadRequest",
    "Changes",
    "Checkpoint",
    "CheckpointMoved",
    "Conflict",
    "DdlEvent",
    "Event",
    "FileCheckpoint",
    "Forbidden",
    "Gone",
    "NoAnswer",
    "NotSupported",
    "Page",
    "Position",
    "RawChanges",
    "RawEvent",
    "RawPage",
    "Row",
    "RowEvent",
    "Rows",
    "SchemaChanged",
    "ServerError",
    "SqlCheckpoint",
    "Table",
    "TableInfo",
    "Tenant",
    "TenantStatus",
    "TiStream",
    "TiStreamError",
    "TimeLike",
    "TooManyRequests",
    "Transaction",
    "Unauthenticated",
    "Unavailable",
    "Undecodable",
    "UnknownName",
    "Version",
    "WrongArgument",
    "to_datetime",
    "to_ts",
]
