"""Builds the dead letter of an event that was left out, as a JSON message. Pure.

    {"version":1,"commit_ts":"…","table":"shop.orders","reason":"…","key":"<hex>","op":"insert",
     "new":{"id":"1","note":"…"},"old":null,"truncated":false}

In the letter of a DDL, `"ddl_job"` and `"query"` replace the members from `key` to `old`. Values are texts; those of
binary columns are hexadecimal. The longest values are cut, or all are left out, until the message is small enough.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tistream.schema.ddl_event import DdlEvent
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.core.outgoing import SentMessage
from tistream_changefeed.rows.row_batch import RowBatch

VERSION = 1
_LENGTHS = (1 << 20, 4_096, 256, 32)  # characters of a value


def of_row(batch: RowBatch, at: int, skip: Skip, topic: str, bytes_max: int) -> SentMessage:
    """Build the letter of the event with index `at` in a batch, with a value of at most `bytes_max` bytes, for
    partition 0 of `topic`. `skip` names the event, and has the reason."""
    raw: bytes = batch.raw[at].as_py()
    head = _head(skip) | {"key": raw.hex(), "op": _op(batch, at)}
    for length in _LENGTHS:
        new, new_cut = _image(batch, batch.new, int(batch.new_at[at]), length)
        old, old_cut = _image(batch, batch.old, int(batch.old_at[at]), length)
        value = _encoded(head | {"new": new, "old": old, "truncated": new_cut or old_cut})
        if len(value) <= bytes_max:
            return SentMessage(topic, 0, raw[:bytes_max], value)
    return SentMessage(topic, 0, None, _small(head | {"new": None, "old": None, "truncated": True}, "key", bytes_max))


def of_ddl(event: DdlEvent, skip: Skip, topic: str, bytes_max: int) -> SentMessage:
    """Build the dead letter of a DDL, for partition 0 of `topic`. `skip` names the DDL, and has the reason. Texts are
    cut if the value would exceed `bytes_max` bytes."""
    head = _head(skip) | {"ddl_job": str(event.job_id), "query": event.query, "truncated": False}
    value = _encoded(head)
    return SentMessage(
        topic, 0, None, value if len(value) <= bytes_max else _small(head | {"truncated": True}, "query", bytes_max)
    )


def _op(batch: RowBatch, at: int) -> str:
    """The kind of one event. It takes the same time in a batch of any size."""
    if batch.new_at[at] < 0:
        return "delete"
    return "insert" if batch.old_at[at] < 0 else "update"


def _head(skip: Skip) -> dict[str, Any]:
    return {"version": VERSION, "commit_ts": str(skip.commit_ts), "table": skip.table, "reason": skip.reason}


def _small(members: dict[str, Any], longest: str, bytes_max: int) -> bytes:
    """Halve the longest of three members (`reason`, `table` and the one named `longest`) until the encoded letter has
    at most `bytes_max` bytes, or that member is empty."""
    while len(value := _encoded(members)) > bytes_max:
        name = max((longest, "reason", "table"), key=lambda one: len(members[one]))
        members = members | {name: members[name][: len(members[name]) // 2]}
        if not members[name]:
            break
    return value


def _image(batch: RowBatch, columns: Any, row: int, length: int) -> tuple[dict[str, str | None] | None, bool]:
    """Returns (the values of row `row` as texts of at most `length` characters, whether one of them was cut). A
    negative `row` gives (None, False)."""
    if row < 0:
        return None, False
    out: dict[str, str | None] = {}
    cut = False
    for column, array in zip(batch.columns, columns, strict=True):
        text = _text(array[row])
        cut = cut or (text is not None and len(text) > length)
        out[column.name] = None if text is None else text[:length]
    return out, cut


def _text(scalar: pa.Scalar) -> str | None:
    value = scalar.as_py()
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


def _encoded(members: dict[str, Any]) -> bytes:
    return json.dumps(members, ensure_ascii=True, separators=(",", ":")).encode()
