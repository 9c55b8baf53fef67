"""Reads TiStream: the changes of a TiDB as events, as Arrow and as DataFrames, and its rows as of any time.

from tistream_client import TiStream

orders = TiStream("http://127.0.0.1:8000").tenant("7", "acme").table("shop", "orders")
orders.changes(since="10m").to_polars()
orders.at("2026-11-20T14:03:00Z").to_polars()
"""

TYPE_CHECKING = False  # without an import of typing, which takes longer than the rest of this package
if TYPE_CHECKING:
    from tistream_client.aio.client import AsyncTable, AsyncTenant, AsyncTiStream
    from tistream_client.aio.raw_reads import AsyncRawChanges
    from tistream_client.aio.reads import AsyncChanges, AsyncRows
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
else:
    _MODULES = {
        "aio.client": ("AsyncTable", "AsyncTenant", "AsyncTiStream"),
        "aio.raw_reads": ("AsyncRawChanges",),
        "aio.reads": ("AsyncChanges", "AsyncRows"),
        "checkpoint": ("Checkpoint", "FileCheckpoint"),
        "core.events": (
            *("ArrowPage", "DdlEvent", "Event", "Page", "Position", "RawEvent", "RawPage", "Row", "RowEvent"),
            *("TableInfo", "TenantStatus", "Transaction", "Version"),
        ),
        "core.times": ("TimeLike",),
        "core.ts": ("to_datetime", "to_ts"),
        "sql_checkpoint": ("SqlCheckpoint",),
        "sync.client": ("Table", "Tenant", "TiStream"),
        "sync.raw_reads": ("RawChanges",),
        "sync.reads": ("Changes", "Rows"),
    }
    _PLACES = {name: module for module, names in _MODULES.items() for name in names}

    def __getattr__(name: str) -> object:
        """Import what a name stands for when it is first used. The command line imports this package before it can
        handle Ctrl-C, so its import must take no time."""
        from importlib import import_module  # noqa: PLC0415

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_PLACES.get(name, 'core.errors')}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """The names of the package, also of what is not imported yet."""
        return sorted({*globals(), *__all__})


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
