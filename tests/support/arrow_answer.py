"""Reads format=arrow and format=parquet as a consumer does, and converts the events to those of NDJSON."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Event = dict[str, Any]
WIDE = ("bigint", "bit")
VERSION = b"1"


def arrow_batches(body: bytes) -> Iterator[pa.RecordBatch]:
    """Every record batch of a body: IPC streams, one after the other, nothing between or behind them."""
    source = io.BytesIO(body)
    while source.tell() < len(body):
        with pa.ipc.open_stream(source) as stream:
            yield from stream


def parquet_tables(body: bytes) -> tuple[list[pa.Table], Event]:
    """The files of a tar archive, and the content of its `end.json`. Raises tarfile.ReadError if the archive was
    cut."""
    tables, end = [], {}
    if len(body) % 512 or body[-1024:] != bytes(1024):
        raise tarfile.ReadError("cut")
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        members = archive.getmembers()
        assert [member.name[:6] for member in members] == [f"{number:06d}" for number in range(1, len(members) + 1)]
        for member in members:
            file = archive.extractfile(member)
            assert file is not None
            if member.name.endswith(".json"):
                assert member is members[-1]
                end = json.load(file)
            else:
                tables.append(pq.read_table(io.BytesIO(file.read())))
    return tables, end


def stream_end(body: bytes, form: str) -> Event:
    """The position at the end of an answer in any format: `type`, `cursor` and, unless it is a `continue`,
    `resolved_ts`."""
    if form == "ndjson":
        end: Event = json.loads(body.splitlines()[-1])
        return end
    if form == "parquet":
        return parquet_tables(body)[1]
    end = {}
    source = io.BytesIO(body)
    while source.tell() < len(body):
        with pa.ipc.open_stream(source) as stream:
            for batch in stream.iter_batches_with_custom_metadata():
                told = batch.custom_metadata
                end = {} if told is None else {name.decode()[9:]: value.decode() for name, value in told.items()}
                if batch.batch.schema.metadata[b"tistream.type"] in (b"resolved", b"continue"):
                    end = events_of(batch.batch)[0][1]
    assert end, "the answer was cut"
    return end


def arrow_events(body: bytes) -> list[Event]:
    """Events and ends of a format=arrow body, in the order of the answer."""
    found: list[tuple[int, Event]] = []
    seen = 0
    for batch in arrow_batches(body):
        told = events_of(batch)
        if batch.schema.metadata[b"tistream.type"] not in (b"row", b"ddl"):
            told = [(seen, event) for _, event in told]
        else:
            seen = max(seen, 1 + max(seq for seq, _ in told))
        found += told
    return [
        event
        for _, event in sorted(found, key=lambda one: one[0] if one[1]["type"] in ("row", "ddl") else one[0] - 0.5)
    ]


def parquet_events(body: bytes) -> list[Event]:
    """Events and the end of a format=parquet body, in the order of the answer."""
    tables, end = parquet_tables(body)
    found = [one for table in tables for batch in table.to_batches() for one in events_of(batch)]
    return [*(event for _, event in sorted(found, key=lambda one: one[0])), end]


def events_of(batch: pa.RecordBatch) -> list[tuple[int, Event]]:
    """The events of a batch as (seq, event in the form of NDJSON)."""
    metadata = batch.schema.metadata
    assert metadata[b"tistream.version"] == VERSION
    kind = metadata[b"tistream.type"].decode()
    if kind == "row":
        return list(_rows(batch, metadata))
    out = []
    for line in batch.to_pylist():
        seq = line.pop("seq", 0)
        stamps = {name: str(value) for name, value in line.items() if name.endswith("_ts") or name == "schema_version"}
        out.append((seq, {"type": kind, **line, **stamps}))
        if kind == "continue":
            assert out[-1][1].pop("resolved_ts") == "None"
    return out


def _rows(batch: pa.RecordBatch, metadata: dict[bytes, bytes]) -> Iterator[tuple[int, Event]]:
    names = {name: metadata[f"tistream.{name}".encode()].decode() for name in ("database", "table", "table_id")}
    shown = {name: _objects(batch.column(name)) for name in ("key", "row", "old_row")}
    for at, line in enumerate(batch.select(["seq", "op", "commit_ts", "start_ts", "schema_version"]).to_pylist()):
        stamps = {name: str(line[name]) for name in ("commit_ts", "start_ts")}
        version = {"schema_version": str(line["schema_version"])}
        sides = {name: shown[name][at] for name in shown}
        yield line["seq"], {"type": "row", "op": line["op"], **stamps, **names, **version, **sides}


def _objects(column: pa.StructArray) -> list[Event | None]:
    fields = [field for field in column.type if field.name != "_"]
    parts = [(field.name, [_value(field, value) for value in column.field(field.name).to_pylist()]) for field in fields]
    there = column.is_valid().to_pylist()
    return [{name: values[at] for name, values in parts} if there[at] else None for at in range(len(column))]


def _value(field: pa.Field, value: Any) -> Any:
    if value is None:
        return None
    sql = (field.metadata or {}).get(b"tidb.type", b"bigint").decode()
    if pa.types.is_float32(field.type):
        return float(str(np.float32(value)))
    if pa.types.is_large_binary(field.type):
        return base64.b64encode(value).decode()
    if sql == "json" or sql.startswith("vector"):
        return json.loads(value)
    return str(value) if sql.startswith(WIDE) else value
