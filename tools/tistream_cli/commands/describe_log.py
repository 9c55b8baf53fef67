"""Describes a metadata object of a TiKV log backup: its slices (byte ranges of an object, each with the entries of one
flush, table and region) and, on request, their first keys. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from tistream.logbackup import entries, metadata
from tistream.logbackup.metadata import Slice
from tistream.model.span import shown_key
from tistream_cli.commands.describe import Description, Sheet

MARK = "/v1/backupmeta/"  # in the target of `tistream inspect`

_COLUMNS = ("object", "offset", "bytes", "cf", "type", "table", "entries", "min_ts", "max_ts", "first key", "last key")
_ENTRY_COLUMNS = ("object", "cf", "type", "ts", "key")


def describe_metadata(
    name: str, data: bytes, rows_max: int, read: Callable[[Slice], bytes] | None = None
) -> Description:
    """Describe a metadata object. `read` fetches the stored bytes of a slice; if it is None, no entries are shown.
    Raises CorruptObject, SourceRefused."""
    found = metadata.parse(name, data)
    rows = [_row(one) for one in found.slices[:rows_max]]
    sheets = [Sheet("slices", _COLUMNS, tuple(rows), len(found.slices))]
    if read is not None:
        shown, unpacker = list[tuple[str | None, ...]](), entries.Unpacker()
        for one in found.slices:
            if len(shown) >= rows_max:
                break
            keys = entries.shown_keys(one, unpacker.unpacked(one, read(one)), rows_max - len(shown))
            shown += [(one.path, one.cf, _type(one), str(ts), shown_key(key)) for key, ts in keys]
        total = sum(one.entries for one in found.slices)
        sheets.append(Sheet("entries", _ENTRY_COLUMNS, tuple(shown), total))
    facts = {"store": found.store_id, "resolved_ts (no watermark)": found.resolved_ts, "max_ts": found.max_ts}
    return Description("metadata of a log backup", facts, tuple(sheets))


def _row(one: Slice) -> tuple[str, ...]:
    numbers = one.table_id, one.entries, one.min_ts, one.max_ts
    table_id, count, low, high = map(str, numbers)
    return (
        one.path,
        str(one.offset),
        str(one.length),
        one.cf,
        _type(one),
        table_id,
        count,
        low,
        high,
        shown_key(one.low),
        shown_key(one.high),
    )


def _type(one: Slice) -> str:
    return "put" if one.put else "physical delete"
