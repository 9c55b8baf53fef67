"""The net change of a window, and its slots and statements: what a MySQL sink writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.feed_tables import Change, Key, Row, batch, column, version
from tistream.schema.tidb import table as t
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.rows.net import TableNet, net
from tistream_changefeed.rows.split import by_unique_index, split
from tistream_changefeed.rows.window import EventWindow
from tistream_changefeed.sinks.mysql.slots import FIRST, assigned, divided
from tistream_changefeed.sinks.mysql.statements import statements

UNIQUE = Key("u", ("u",), id=2)
COLUMNS = [
    column("id", flag=t.FLAG_PRIMARY | t.FLAG_NOT_NULL),
    column("u", t.VARCHAR, Collate="utf8mb4_general_ci"),
    column("v"),
]
KEYED = version(COLUMNS, [UNIQUE], pk_is_handle=True)
KEYLESS = version([column("a"), column("b", t.VARCHAR)])
Tables = dict[bytes, Row]


def window(of: TableVersion, changes: list[Change]) -> EventWindow:
    return split(EventWindow((batch(of, changes),), ()), by_unique_index)


def rows(found: pa.RecordBatch) -> list[dict[str, Any]]:
    return found.to_pylist()


def applied(table: list[Row], nets: list[TableNet], unique: list[str]) -> list[Row]:
    """The table after the deletes and then the puts, as a server does it, which refuses a duplicate value."""
    for one in nets:
        for old in rows(one.deletes):
            keys = [key.name for key in one.handle] or list(old)
            at = next(at for at, row in enumerate(table) if all(row[key] == old[key] for key in keys))
            table = table[:at] + table[at + 1 :]
    for one in nets:
        for new in rows(one.updates):
            same = [at for at, row in enumerate(table) if row["id"] == new["id"]]
            assert len(same) == 1, "an update finds its row"
            table = [*table[: same[0]], *table[same[0] + 1 :], new]
        table = table + rows(one.inserts)
    for name in unique:
        values = [row[name] for row in table if row[name] is not None]
        assert len(set(values)) == len(values), f"{name} collides"
    return table


def test_a_row_that_comes_and_goes_is_not_written() -> None:
    one = {"id": 1, "u": "a", "v": 1}
    assert net(window(KEYED, [Change(None, one), Change(one, None, 11)])) == ()


def test_the_first_old_and_the_last_new_row_count() -> None:
    a, b, c = ({"id": 1, "u": "a", "v": number} for number in (1, 2, 3))
    (found,) = net(window(KEYED, [Change(a, b), Change(b, c, 11)]))
    assert (rows(found.deletes), rows(found.updates), rows(found.inserts)) == ([], [c], [])
    assert net(window(KEYED, [Change(a, b), Change(b, a, 11)])) == ()


def test_a_row_whose_unique_value_moves_is_deleted_and_inserted() -> None:
    a, b = {"id": 1, "u": "a", "v": 1}, {"id": 1, "u": "b", "v": 1}
    (found,) = net(window(KEYED, [Change(a, b)]))
    assert (rows(found.deletes), rows(found.updates), rows(found.inserts)) == ([a], [], [b])


def test_of_equal_rows_without_a_key_each_counts() -> None:
    row = {"a": 1, "b": "x"}
    changes = [Change(None, row, key=b"1"), Change(None, row, key=b"2"), Change(row, None, key=b"3")]
    (found,) = net(window(KEYLESS, changes))
    assert (len(rows(found.deletes)), len(rows(found.inserts))) == (1, 2)
    assert set(assigned(found, 8)) == {FIRST}


OPS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from("abcdef"), st.integers(0, 2), st.booleans()), max_size=40)


def history(ops: list[tuple[int, str, int, bool]]) -> tuple[list[Change], Tables, int]:
    """Changes that a database with a unique `u` accepts, and the rows before the second half and after all."""
    state: Tables = {}
    changes: list[Change] = []
    for ts, (number, u, v, gone) in enumerate(ops, 10):
        key = bytes([number])
        old = state.get(key)
        new = None if gone else {"id": number, "u": u, "v": v}
        taken = any(row["u"] == u for other, row in state.items() if other != key)
        if (new is not None and taken) or old == new:
            continue
        changes.append(Change(old, new, ts, ts - 1, key))
        state.pop(key, None)
        if new is not None:
            state[key] = new
    return changes, state, len(changes)


def state_after(changes: list[Change]) -> Tables:
    state: Tables = {}
    for one in changes:
        state.pop(one.key, None)
        if one.new is not None:
            state[one.key] = one.new
    return state


@settings(max_examples=examples(200), deadline=None)
@given(OPS, st.integers(0, 40), st.integers(1, 5), st.randoms(use_true_random=False))
def test_a_table_gets_the_rows_of_the_upstream_whatever_the_window_and_the_slots(
    ops: list[tuple[int, str, int, bool]], cut: int, slots: int, order: Any
) -> None:
    changes, after, count = history(ops)
    cut = min(cut, count)
    before = list(state_after(changes[:cut]).values())
    parts = divided(net(window(KEYED, changes[cut:])), slots)
    order.shuffle(parts)  # slots commit in any order: their changes have no unique value in common
    table = before
    for part in parts:
        table = applied(table, part, ["id", "u"])
    assert sorted(map(str, table)) == sorted(map(str, after.values()))


@pytest.mark.parametrize(("old", "new"), [("Straße", "STRASSE"), ("a ", "A"), ("é", "e")])
def test_texts_that_a_collation_may_find_equal_share_a_slot(old: str, new: str) -> None:
    gone = [Change({"id": at, "u": f"{old}", "v": 0}, None, key=bytes([at])) for at in (1,)]
    come = [Change(None, {"id": at, "u": f"{new}", "v": 0}, key=bytes([at])) for at in range(2, 40)]
    (found,) = net(window(KEYED, gone + come))
    assert len(set(assigned(found, 16))) == 1


def test_changes_without_a_common_value_are_spread() -> None:
    come = [Change(None, {"id": at, "u": f"u{at}", "v": 0}, key=bytes([at])) for at in range(200)]
    (found,) = net(window(KEYED, come))
    assert len(set(assigned(found, 4))) == 4


def test_a_window_is_cut_between_events() -> None:
    come = [Change(None, {"id": at, "u": f"u{at}", "v": 0}, 10 + at, key=bytes([at])) for at in range(10)]
    whole = RowEvents(window(KEYED, come))
    part = whole.between(2, 9).between(1, 4)
    assert part.commit_ts.tolist() == [13, 14, 15]
    assert [row["id"] for row in rows(net(part.window)[0].inserts)] == [3, 4, 5]
    assert np.all(whole.sizes > 0)


def test_deletes_come_before_puts_and_repeats_replace() -> None:
    a, b, c = {"id": 1, "u": "a", "v": 1}, {"id": 2, "u": "a", "v": 1}, {"id": 3, "u": "c'%", "v": None}
    d = c | {"v": 4}
    nets = net(window(KEYED, [Change(a, None), Change(None, b, 11, key=b"l"), Change(c, d, 12, key=b"m")]))
    once = [one.sql for one in statements(nets, Dialect.MARIADB, safe=False)]
    assert once == [
        "DELETE FROM `d`.`t` WHERE `id` IN (1)",
        "INSERT INTO `d`.`t` (`id`, `u`, `v`) VALUES\n(3, 'c''%', 4)\nON DUPLICATE KEY UPDATE "
        "`id` = VALUES(`id`), `u` = VALUES(`u`), `v` = VALUES(`v`)",
        "INSERT INTO `d`.`t` (`id`, `u`, `v`) VALUES\n(2, 'a', 1)",
    ]
    again = [one.sql for one in statements(nets, Dialect.MARIADB, safe=True)]
    assert [sql.split(" ")[0] for sql in again] == ["DELETE", "REPLACE", "REPLACE"]


def test_rows_without_a_key_are_found_by_all_their_values() -> None:
    changes = [Change({"a": None, "b": "É"}, None, key=b"1")]
    (found,) = statements(net(window(KEYLESS, changes)), Dialect.MARIADB, safe=False)
    condition = "`a` <=> NULL AND HEX(CONVERT(`b` USING utf8mb4)) <=> 'C389'"
    assert (found.sql, found.rows) == (f"DELETE FROM `d`.`t` WHERE {condition} LIMIT 1", 1)
