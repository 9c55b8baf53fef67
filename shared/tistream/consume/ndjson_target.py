"""Writes events as lines of JSON, to a stream or to a file that a later process can continue."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from tistream.consume.feed_events import Row, RowEvent, Value, ValueKind
from tistream.consume.reorder import Ddl, ReadProgress, Resolved, Step, Transaction
from tistream.errors import CorruptObject

_TAIL_BYTES = 1 << 16
_HEAD = b'{"type":"resolved"'


def lines(step: Step) -> Iterator[dict[str, Any]]:
    """Convert one step (a transaction, a DDL or a resolved ts) to its JSON lines. Numbers that some JSON readers would
    round, such as BIGINT and timestamps, are texts; byte strings are base64."""
    if isinstance(step, Transaction):
        for row in step.rows:
            yield {
                "type": "row",
                "commit_ts": str(row.commit_ts),
                "database": row.database,
                "table": row.table,
                "op": "delete" if row.new is None else "insert" if row.old is None else "update",
                "key": list(row.key),
                "row": _row(row, row.new),
                "old_row": _row(row, row.old),
            }
    elif isinstance(step, Ddl):
        event = step.event
        yield {
            "type": "ddl",
            "commit_ts": str(event.commit_ts),
            "database": event.database,
            "table": event.table,
            "query": event.query,
        }
    else:
        yield {"type": "resolved", "ts": str(step.progress.ts), "progress": to_json(step.progress)}


def _row(event: RowEvent, row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {name: _value(value, event.kinds.get(name)) for name, value in row.items()}


def _value(value: Value, kind: ValueKind | None) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if kind in (ValueKind.WIDE, ValueKind.BITS) and isinstance(value, int):
        return str(value)
    return value


def to_json(progress: ReadProgress) -> dict[str, Any]:
    """Convert progress to a JSON object, in the form in which targets store it."""
    return {
        "ts": str(progress.ts),
        "offsets": [[topic, number, offset] for (topic, number), offset in progress.offsets.items()],
        "ddls": sorted(progress.ddls),
    }


def from_json(found: dict[str, Any]) -> ReadProgress:
    """Parse progress that `to_json` encoded."""
    offsets = {(str(topic), int(number)): int(offset) for topic, number, offset in found["offsets"]}
    return ReadProgress(int(found["ts"]), offsets, frozenset(map(str, found["ddls"])))


class NdjsonStream:
    """A Target that writes to a stream such as stdout. It stores no progress."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def progress(self) -> ReadProgress | None:
        """Always None, because a stream stores no progress."""
        return None

    def write(self, steps: Iterable[Step]) -> None:
        """Write the JSON lines of the steps to the stream."""
        for step in steps:
            for line in lines(step):
                self._stream.write(_text(line))
        self._stream.flush()


class NdjsonFile:
    """A Target that appends to a file. One process at a time may open the file.

    Each `resolved` line holds the progress. When the file is opened again, the lines after the last `resolved` line are
    removed. The first line is a `resolved` line of ts 0, which shows that this class has created the file.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises CorruptObject if the file has lines, but no `resolved` line."""
        self._file = open(path, "a+b")  # noqa: SIM115  # closed by `close`
        if self._file.seek(0, os.SEEK_END) == 0:
            self.write([Resolved(ReadProgress())])
        self._progress, end = _last_progress(self._file, path)
        self._file.truncate(end)

    def progress(self) -> ReadProgress | None:
        """The progress in the last `resolved` line of the file."""
        return self._progress

    def write(self, steps: Iterable[Step]) -> None:
        """Append the JSON lines of the steps. The file is synced to disk after each resolved ts."""
        for step in steps:
            self._file.write("".join(map(_text, lines(step))).encode())
            if isinstance(step, Resolved):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._progress = step.progress

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


def _last_progress(file: IO[bytes], path: Path) -> tuple[ReadProgress, int]:
    """Returns (the progress of the last whole `resolved` line, the offset where that line ends). Reads backwards from
    the file's end, because the file may be long. Raises CorruptObject if there is no such line."""
    tail = b""
    at = file.seek(0, os.SEEK_END)
    while at > 0:
        step = min(_TAIL_BYTES, at)
        at -= step
        file.seek(at)
        tail = file.read(step) + tail
        whole = tail[: tail.rfind(b"\n") + 1]
        before = b"" if at else b"\n"  # no line break precedes the first line of the file
        found = (before + whole).rfind(b"\n" + _HEAD)
        if found >= 0:
            begin = found + 1 - len(before)
            end = whole.index(b"\n", begin)
            return from_json(json.loads(whole[begin:end])["progress"]), at + end + 1
    raise CorruptObject(str(path), "none of its lines has a position to continue from; move it away to begin again")
