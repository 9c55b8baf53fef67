"""Reads the events of a data file of a feed, with the commit_ts and the key that each states. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tistream.arrays import Int64s
from tistream.schema.visible import Name
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.protocols.csv.encoder import CsvEncoder
from tistream_changefeed.protocols.csv.options import CsvOptions
from tistream_changefeed.protocols.op_texts import DELETE, INSERT
from tistream_changefeed.sinks.storage.formats import COMMIT_TS, LINE
from tistream_changefeed.verify.message_heads import Unreadable

_BROKEN = (orjson.JSONDecodeError, KeyError, TypeError, ValueError, IndexError, AttributeError)


@dataclass(frozen=True, slots=True)
class FileEvents:
    """The events of a file, in order. `rows` has a row for each event, as the format of the feed's files encodes
    it."""

    rows: pa.Table
    commit_ts: Int64s


@dataclass(frozen=True, slots=True)
class SentColumns:
    """The names of the columns of a table that are sent, in order, and those of its handle key."""

    names: tuple[str, ...] = ()
    handle: tuple[str, ...] = ()


class FileReader(Protocol):
    """Reads files of one format."""

    def events(self, body: bytes, name: Name) -> FileEvents:
        """The events of a data file of the table `name`. Raises Unreadable."""

    def key(self, rows: pa.Table, at: int, columns: SentColumns) -> dict[str, Any]:
        """The values of the handle key that event `at` states; empty if its columns are not known."""


def reading(config: FeedConfig) -> FileReader | str:
    """Return the reader of a feed's files, or a text that says why they cannot be compared."""
    storage = config.storage
    assert storage is not None
    if storage.format == "parquet":
        return ParquetReader()
    if storage.format == "canal-json":
        if config.protocol.enable_tidb_extension:
            return JsonReader(storage.terminator.encode())
        return "canal-json has no commit_ts in its lines: enable-tidb-extension=true of the sink URI adds it"
    options = CsvOptions(**storage.csv.model_dump(), terminator=storage.terminator)
    if options.include_commit_ts:
        return CsvReader(options)
    return "the lines of CSV have no commit_ts: include-commit-ts = true under [sink.csv] adds it"


class ParquetReader:
    """Reads Parquet files."""

    def events(self, body: bytes, name: Name) -> FileEvents:  # noqa: ARG002
        """Read the events of a Parquet file of the feed. Raises Unreadable if it is not one."""
        try:
            rows = pq.read_table(pa.BufferReader(body))
            return FileEvents(rows, rows.column(COMMIT_TS).to_numpy().astype(np.int64))
        except (pa.ArrowException, *_BROKEN) as error:
            raise Unreadable(f"it is no Parquet file of a feed ({type(error).__name__})") from error

    def key(self, rows: pa.Table, at: int, columns: SentColumns) -> dict[str, Any]:
        """The values of the handle key in row `at`, by column; bytes as hexadecimal text."""
        values = {name: rows.column(name)[at].as_py() for name in columns.handle if name in rows.column_names}
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class JsonReader:
    """Reads lines of canal-json with TiDB's extension. `end`: the bytes after each line."""

    end: bytes

    def events(self, body: bytes, name: Name) -> FileEvents:  # noqa: ARG002
        """Read the events of a file of canal-json. Raises Unreadable if a line is not canal-json with TiDB's
        extension."""
        lines = _lines(body, self.end)
        try:
            stamps = [int(orjson.loads(line)["_tidb"]["commitTs"]) for line in lines]
        except _BROKEN as error:
            raise Unreadable(f"it has a line that is not canal-json ({type(error).__name__})") from error
        return _events([line + self.end for line in lines], stamps)

    def key(self, rows: pa.Table, at: int, columns: SentColumns) -> dict[str, Any]:  # noqa: ARG002
        """The values of the primary key that line `at` states, by column."""
        value = orjson.loads(rows.column(LINE)[at].as_py().removesuffix(self.end))
        row = value["data"][0]
        return {name: row.get(name) for name in value["pkNames"] or ()}


class CsvReader:
    """Reads lines of CSV that state their commit_ts. An update with its old values is two lines, and one event."""

    def __init__(self, options: CsvOptions) -> None:
        self._options, self._encoder = options, CsvEncoder(options)
        self._end, self._cut = options.terminator.encode(), options.delimiter.encode()

    def events(self, body: bytes, name: Name) -> FileEvents:
        """Read the events of a CSV file of the table `name`. Raises Unreadable if a line is not of this table, or has
        no commit_ts."""
        heads = [head.encode() + self._cut for head in self._encoder.heads(name)]
        found: list[bytes] = []
        stamps: list[int] = []
        half = False  # the last line is the first one of an update
        for line in self._whole(body):
            op = next((op for op, head in enumerate(heads) if line.startswith(head)), None)
            if op is None:
                raise Unreadable("it has a line that does not begin with an operation and the table")
            text, _, rest = line[len(heads[op]) :].partition(self._cut)
            if not text.isdigit():
                raise Unreadable("it has a line without a commit_ts")
            updates = self._options.output_old_value and rest.partition(self._cut)[0] == b"true"
            if half and op == INSERT and updates and stamps[-1] == int(text):
                found[-1] += line + self._end
                half = False
            else:
                found.append(line + self._end)
                stamps.append(int(text))
                half = op == DELETE and updates
        return _events(found, stamps)

    def key(self, rows: pa.Table, at: int, columns: SentColumns) -> dict[str, Any]:
        """The values of the handle key in event `at`, by column, as texts of the line; binary values are encoded. Empty
        if the line has another number of columns than `columns`."""
        line = next(self._whole(rows.column(LINE)[at].as_py())).decode(errors="replace")
        heads = 5 if self._options.output_old_value else 4  # operation, table, database, commit_ts, is-update
        values = list(self._fields(line))[heads:]
        if len(values) != len(columns.names):
            return {}
        return {name: value for name, value in zip(columns.names, values, strict=True) if name in columns.handle}

    def _fields(self, line: str) -> Iterator[str]:
        """The fields of a line, without quotes."""
        quote, cut, at = re.escape(self._options.quote), re.escape(self._options.delimiter), 0
        plain = rf"(?:(?!{cut}).)*" if quote else rf"(?:\\.|(?!{cut}).)*"
        form = re.compile(
            rf"{quote}((?:[^{quote}]|{quote}{quote})*){quote}|({plain})" if quote else rf"()({plain})", re.S
        )
        while at <= len(line):
            found = form.match(line, at)
            assert found is not None, "the second form matches anything"
            yield found[2] if found[2] is not None else found[1].replace(self._options.quote * 2, self._options.quote)
            at = found.end() + len(self._options.delimiter)

    def _whole(self, body: bytes) -> Iterator[bytes]:
        """The lines of a file, without their ends. A quoted value may contain the terminator of lines."""
        quote, before = self._options.quote.encode(), b""
        for part in _lines(body, self._end):
            line = before + part
            if quote and line.count(quote) % 2:
                before = line + self._end
            else:
                before = b""
                yield line
        if before:
            raise Unreadable("it ends inside a quoted value")


def _lines(body: bytes, end: bytes) -> list[bytes]:
    lines = body.split(end)
    if lines.pop():
        raise Unreadable("it ends inside a line")
    return lines


def _events(lines: Sequence[bytes], stamps: Sequence[int]) -> FileEvents:
    return FileEvents(pa.table({LINE: pa.array(lines, pa.large_binary())}), np.array(stamps, np.int64))
