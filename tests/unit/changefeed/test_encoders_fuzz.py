"""Messages of random rows of all types are those of encoders that print value by value."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from support import plain_json
from support.effort import seeds
from support.random_batches import random_batch, random_version
from tistream.schema.tidb.table import Column
from tistream_changefeed.protocols.canal_json import types
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.protocols.messages import Messages
from tistream_changefeed.protocols.open_protocol import columns as open_columns
from tistream_changefeed.protocols.open_protocol.encoder import OpenOptions, OpenProtocol
from tistream_changefeed.rows.row_batch import RowBatch

ROWS = 60
Value = dict[int, Any]
Member = Callable[[Column, Any], str]


def side(batch: RowBatch, arrays: Sequence[pa.Array], at: int) -> Value:
    """The values of a row by column id."""
    return {one.id: array[at].as_py() for one, array in zip(batch.columns, arrays, strict=True)}


def events(batch: RowBatch) -> list[tuple[Value | None, Value | None]]:
    """(old, new) of each event."""
    return [
        (None if old < 0 else side(batch, batch.old, old), None if new < 0 else side(batch, batch.new, new))
        for old, new in zip(batch.old_at.tolist(), batch.new_at.tolist(), strict=True)
    ]


def members(columns: Sequence[Column], row: Value, member: Member) -> str:
    return ",".join(member(one, row[one.id]) for one in columns)


def changed(columns: Sequence[Column], old: Value, new: Value) -> list[Column]:
    return [one for one in columns if repr(old[one.id]) != repr(new[one.id])]


def open_value(batch: RowBatch, options: OpenOptions, old: Value | None, new: Value | None) -> str:
    flags = open_columns.flags_of(batch.version.table, batch.handle)

    def member(one: Column, value: Any) -> str:
        handle = '"h":true,' if one in batch.handle else ""
        shown = plain_json.open_value(one, value)
        return f'{plain_json.string(one.name)}:{{"t":{one.tp},{handle}"f":{flags[one.id]},"v":{shown}}}'

    if new is None:
        assert old is not None
        trims = options.delete_only_output_handle_key_columns and batch.handle
        kept = [one for one in batch.columns if one in batch.handle] if trims else batch.columns
        return f'{{"d":{{{members(kept, old, member)}}}}}'
    update = f'"u":{{{members(batch.columns, new, member)}}}'
    if old is None or not options.output_old_value:
        return f"{{{update}}}"
    kept = changed(batch.columns, old, new) if options.only_output_updated_columns else batch.columns
    return f'{{{update},"p":{{{members(kept, old, member)}}}}}'


def canal_value(batch: RowBatch, options: CanalOptions, at: int, old: Value | None, new: Value | None) -> str:
    def member(one: Column, value: Any) -> str:
        return f"{plain_json.string(one.name, html=True)}:{plain_json.canal_value(one, value)}"

    def sql_type(one: Column, value: Any) -> str:
        wider = types.wider(one)
        large = wider is not None and value is not None and value > wider[0]
        shown = wider[1] if wider is not None and large else types.sql_type(one, faults=False)
        return f"{plain_json.string(one.name, html=True)}:{shown}"

    def mysql_type(one: Column, _: Any) -> str:
        full = types.mysql_type(one, full=options.content_compatible)
        return f"{plain_json.string(one.name, html=True)}:{plain_json.string(full, html=True)}"

    row = old if new is None else new
    assert row is not None
    trims = new is None and options.delete_only_output_handle_key_columns and batch.handle
    kept = [one for one in batch.columns if one in batch.handle] if trims else batch.columns
    names = ",".join(plain_json.string(one.name, html=True) for one in batch.columns if one.flag & 2)
    ms, commit_ts = int(batch.commit_ts[at]) >> 18, int(batch.commit_ts[at])
    op = "DELETE" if new is None else "INSERT" if old is None else "UPDATE"
    before = "null"
    if op == "UPDATE":
        assert old is not None
        assert new is not None
        only = options.only_output_updated_columns or options.content_compatible
        before = f"[{{{members(changed(kept, old, new) if only else kept, old, member)}}}]"
    database, table = (plain_json.string(name, html=True) for name in batch.version.name)
    row_key = base64.b64encode(batch.raw[at].as_py()).decode()
    told = f'"commitTs":{commit_ts}' + (f',"rowkey":"{row_key}"' if options.output_row_key else "")
    extension = f',"_tidb":{{{told}}}' if options.enable_tidb_extension else ""
    return (
        f'{{"id":0,"database":{database},"table":{table},"pkNames":[{names}],"isDdl":false,"type":"{op}","es":{ms},'
        f'"ts":{ms},"sql":"","sqlType":{{{members(kept, row, sql_type)}}},"mysqlType":'
        f'{{{members(kept, row, mysql_type)}}},"old":{before},"data":[{{{members(kept, row, member)}}}]{extension}}}'
    )


def compared(found: Messages, expected: list[str]) -> None:
    for ours, theirs in zip(found.values.to_pylist(), expected, strict=True):
        assert ours.decode() == theirs


@pytest.mark.parametrize("seed", seeds(12, 300))
def test_random_rows_are_those_of_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    batch = random_batch(rng, random_version(rng), rng.randrange(ROWS))
    flips = [rng.random() < 0.5 for _ in range(5)]
    open_options = OpenOptions(flips[0], flips[1], flips[2])
    canal_options = CanalOptions(flips[3], flips[4], flips[0], flips[1], flips[2])
    found = OpenProtocol(open_options).rows(batch)
    assert found.keys is not None
    compared(found, [open_value(batch, open_options, *event) for event in events(batch)])
    canal = CanalJson(canal_options).rows(batch)
    compared(canal, [canal_value(batch, canal_options, at, *event) for at, event in enumerate(events(batch))])
    assert canal.keys is None
    database, table = map(plain_json.string, batch.version.name)
    assert [key.decode() for key in found.keys.to_pylist()] == [
        f'{{"ts":{ts},"scm":{database},"tbl":{table},"t":1}}' for ts in batch.commit_ts.tolist()
    ]
