"""Describes what an object in the object store contains, in readable form: attributes and tables. No I/O."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tistream.format import manifest as manifest_format
from tistream.format.segment import SegmentRef
from tistream.model.span import KeySpan
from tistream.schema import log_format as schema_log
from tistream_client.cli.errors import CliError

_TYPES = {1: "PREWRITE", 2: "COMMIT", 3: "ROLLBACK", 4: "COMMITTED", 100: "WATERMARK"}
_OPS = {0: "-", 1: "put", 2: "delete"}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table to print. `total` is the number of all rows, of which `rows` may have only the first ones."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    total: int


@dataclass(frozen=True, slots=True)
class Description:
    """An object's kind, its attributes by name, and its tables."""

    kind: str
    facts: Mapping[str, Any]
    sheets: tuple[Sheet, ...] = ()


def describe(name: str, data: bytes, rows_max: int) -> Description:
    """Detect the kind of object from its bytes, and describe it, with at most `rows_max` rows of each table. Raises
    CliError for an unknown format, CorruptObject for a damaged object."""
    if data[:4] == manifest_format.MAGIC:
        return _manifest(name, data, rows_max)
    if data[:4] == schema_log.MAGIC:
        return _schema_log(name, data, rows_max)
    if data[:4] == b"PAR1":
        return _parquet(name, data, rows_max)
    if data.lstrip()[:1] == b"{":
        return _json(name, data)
    raise CliError(
        f"{name} ({len(data)} bytes) is not an object of TiStream: inspect takes manifests, Parquet files, schema "
        "logs and JSON"
    )


def _manifest(name: str, data: bytes, rows_max: int) -> Description:
    found = manifest_format.decode(name, data)
    facts = {
        "task": f"{found.tenant} task {found.task_id}",
        "span": _span(found.span),
        "kind": found.kind,
        "number": found.number,
        "task_epoch": found.task_epoch,
        "nonce": found.nonce,
        "window": f"({found.low_ts}, {found.flushed_ts}]",
        "checkpoint": found.checkpoint,
        "stop_at": found.stop_at,
        "merge": None if found.merge is None else found.merge.to_json(),
        "children": [f"{task} {_span(span)}" for task, span in found.children],
        "written_ms": found.written_ms,
        "counters": dict(found.counters),
        "positions": {
            str(store): [f"{chain.first_ts}..{chain.at_ts}" for chain in chains]
            for store, chains in sorted(found.positions.items())
        },
    }
    sheets = [_segments("segments", found.segments, rows_max)]
    if found.live_segments is not None:
        sheets.append(_segments("live segments", found.live_segments, rows_max))
    if found.cover:
        bases = [{"span": _span(base.span), "base_ts": base.base_ts} for base in found.cover]
        sheets.append(_objects("bases", bases, rows_max))
    sheets.append(_objects("pending", [_fields(part) for part in found.pending], rows_max))
    for title, table in (("slices", found.slices), ("waiting", found.waiting)):
        if table is not None:
            sheets.append(_rows(title, table, rows_max))
    return Description("manifest", facts, tuple(sheets))


def _fields(part: Any) -> dict[str, Any]:
    """The fields of a dataclass, by name. Nested dataclasses stay as they are."""
    return {name: getattr(part, name) for name in part.__slots__}


def _segments(title: str, segments: Sequence[SegmentRef], rows_max: int) -> Sheet:
    objects = [
        {
            "key": segment.key,
            "size": segment.size,
            "checksum": segment.checksum,
            "rows": segment.rows,
            "row_groups": len(segment.row_groups),
            "commit_ts": f"{segment.commit_ts_min}..{segment.commit_ts_max}" if segment.row_groups else "-",
        }
        for segment in segments
    ]
    return _objects(title, objects, rows_max)


def _schema_log(name: str, data: bytes, rows_max: int) -> Description:
    found = schema_log.decode(name, data)
    facts: dict[str, Any] = {
        "tenant": str(found.tenant),
        "number": found.number,
        "window": f"({found.low_ts}, {found.high_ts}]",
        "nonce": found.nonce,
    }
    if found.base is not None:
        facts["base_ts"] = found.base.base_ts
        facts["restated"] = f"{found.base.restated} records, of {found.base.begin}"
    lines = [json.loads(schema_log.encode_record(record)) for record in found.records[:rows_max]]
    return Description("schema log", facts, (_objects("records", lines, rows_max, total=len(found.records)),))


def _parquet(name: str, data: bytes, rows_max: int) -> Description:
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        own = {k.decode(): v.decode("utf-8", "replace") for k, v in (file.metadata.metadata or {}).items()}
        table = _head(file, rows_max)
    except (pa.ArrowException, OSError) as error:
        raise CliError(f"{name} is a damaged Parquet file: {error}") from error
    names = set(file.schema_arrow.names)
    if "tistream.version" in own and "region_id" in names:
        kind = "change file"
    elif names >= {"table_id", "commit_ts", "start_ts", "key", "op"}:
        kind = "segment"
    else:
        kind = "pending part" if "start_ts" in names else "Parquet file"
    facts = {
        "bytes": len(data),
        "rows": file.metadata.num_rows,
        **{key: value for key, value in own.items() if key.startswith("tistream.")},
    }
    rows = _rows("rows", table, rows_max, total=file.metadata.num_rows)
    return Description(kind, facts, (_row_groups(file.metadata), rows))


def _head(file: pq.ParquetFile, rows_max: int) -> pa.Table:
    batches = []
    left = rows_max
    for batch in file.iter_batches(batch_size=max(rows_max, 1)):
        if left <= 0:
            break
        batches.append(batch.slice(0, left))
        left -= batch.num_rows
    return pa.Table.from_batches(batches, file.schema_arrow)


def _row_groups(metadata: pq.FileMetaData) -> Sheet:
    objects = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        line: dict[str, Any] = {"row group": index, "rows": group.num_rows, "bytes": group.total_byte_size}
        for at in range(group.num_columns):
            column = group.column(at)
            if column.path_in_schema in ("table_id", "commit_ts", "start_ts", "key") and column.is_stats_set:
                statistics = column.statistics
                if statistics.has_min_max:
                    line[column.path_in_schema] = f"{_bound(statistics.min)}..{_bound(statistics.max)}"
        objects.append(line)
    return _objects("row groups", objects, metadata.num_row_groups)


def _bound(value: Any) -> str:
    return _cell(value) or ("-" if value is None else "")


def _json(name: str, data: bytes) -> Description:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise CliError(f"{name} is not valid JSON: {error}") from error
    if not isinstance(found, dict) or "databases" not in found:
        return Description("JSON", {"bytes": len(data), "members": ", ".join(found)})
    objects = [
        {
            "database": entry["db_info"]["db_name"]["O"],
            "tables": len(entry.get("tables") or []),
            "names": ", ".join(table["name"]["O"] for table in entry.get("tables") or []),
        }
        for entry in found["databases"]
    ]
    facts = {"version": found.get("version"), "snapshot_ts": found.get("snapshot_ts"), "bytes": len(data)}
    return Description("schema_snap", facts, (_objects("databases", objects, len(objects)),))


def _rows(title: str, table: pa.Table, rows_max: int, total: int | None = None) -> Sheet:
    return _objects(title, table.slice(0, rows_max).to_pylist(), rows_max, total=total or table.num_rows)


def _objects(title: str, objects: Sequence[Mapping[str, Any]], rows_max: int, total: int | None = None) -> Sheet:
    columns = tuple(dict.fromkeys(name for line in objects for name in line))
    rows = tuple(tuple(_cell(line.get(name), name) for name in columns) for line in objects[:rows_max])
    return Sheet(title, columns, rows, len(objects) if total is None else total)


def _cell(value: Any, column: str = "") -> str | None:
    if value is None:
        return None
    if column == "type" and value in _TYPES:
        return _TYPES[value]
    if column in ("op", "op_type") and value in _OPS:
        return _OPS[value]
    return value.hex() if isinstance(value, bytes) else str(value)


def _span(span: KeySpan) -> str:
    return f"[{span.start.hex() or '-inf'}, {span.end.hex() or '+inf'})"


def to_json(found: Description) -> dict[str, Any]:
    """Convert a description to plain JSON."""
    tables = {
        sheet.title: {
            "total": sheet.total,
            "rows": [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows],
        }
        for sheet in found.sheets
    }
    return {"kind": found.kind, "facts": dict(found.facts), "tables": tables}
