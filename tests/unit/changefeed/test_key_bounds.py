"""The range of keys to which a comparison of messages is limited."""

from __future__ import annotations

import pytest

from support.feed_tables import Key, column, version
from tistream.errors import InvalidRequest
from tistream.schema.tidb import table as t
from tistream.schema.visible import TableVersion
from tistream_changefeed.config.feed_config import ProtocolConfig
from tistream_changefeed.verify.key_bounds import key_bounds
from tistream_changefeed.verify.message_heads import MessageReader, reading

_KEY = t.FLAG_PRIMARY | t.FLAG_NOT_NULL
NUMBERED = version([column("v"), column("id", flag=_KEY)], pk_is_handle=True)
PAIR = [column("name", t.VARCHAR, flag=_KEY), column("n", flag=_KEY)]
NAMED = version(PAIR, [Key("PRIMARY", ("n", "name"), primary=True)])  # the table's order counts
PRICED = version([column("price", t.DECIMAL, flag=_KEY)], [Key("PRIMARY", ("price",), primary=True)])


@pytest.mark.parametrize(
    ("of", "low", "high", "inside", "outside"),
    [
        (NUMBERED, "9", "100", [{"id": 9}, {"id": "100"}, {"id": 50, "v": 0}], [{"id": 8}, {"id": "101"}]),
        (NUMBERED, None, "9", [{"id": -1}, {"id": "9"}], [{"id": 10}]),
        (NUMBERED, "9", None, [{"id": 1 << 63}], [{"id": 8}]),
        (NAMED, "b", "ca", [{"n": 0, "name": "b"}, {"name": "ca"}], [{"name": "a"}, {"name": "cb"}]),
        (PRICED, "1.50", "10", [{"price": "1.5"}, {"price": "9.99"}], [{"price": "1.49"}, {"price": "10.01"}]),
    ],
)
def test_keys_are_compared_as_their_column_is(
    of: TableVersion,
    low: str | None,
    high: str | None,
    inside: list[dict[str, object]],
    outside: list[dict[str, object]],
) -> None:
    bounds = key_bounds(of, low, high)
    assert [bounds.has(key) for key in inside] == [True] * len(inside)
    assert [bounds.has(key) for key in outside] == [False] * len(outside)


@pytest.mark.parametrize(
    ("of", "low", "high", "reason"),
    [
        (NUMBERED, "x", None, "key_from 'x' is not a number, as id is"),
        (NUMBERED, "10", "9", "key_from 10 is above key_to 9"),
        (NUMBERED, "nan", "9", "key_from 'nan' is not a number, as id is"),
        (PRICED, "1", "Infinity", "key_to 'Infinity' is not a number, as price is"),
        (version([column("a")]), "1", None, r"table d\.t has no key"),
    ],
)
def test_a_range_that_no_key_is_in_is_refused(of: TableVersion, low: str, high: str | None, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        key_bounds(of, low, high)


@pytest.mark.parametrize(
    ("of", "low", "key", "reason"),
    [
        (NUMBERED, "9", {}, "has no id in its key: the table had another key then"),
        (NUMBERED, "9", {"former": 10}, "has no id in its key"),
        (NAMED, "b", {"n": 1, "name": None}, "has no name in its key"),
        (NUMBERED, "9", {"id": "ten"}, "has id as 'ten', not a number: the column had another type"),
        (NUMBERED, "9", {"id": "nan"}, "has id as 'nan', not a number"),
        (NAMED, "b", {"n": 1, "name": 10}, "has name as 10, not a text"),
    ],
)
def test_a_key_of_before_the_table_was_altered_is_refused_and_not_left_out(
    of: TableVersion, low: str, key: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"a message {reason}.*; leave out key_from"):
        key_bounds(of, low, None).has(key)


@pytest.mark.parametrize("tp", [t.DATE, t.DATETIME, t.TIMESTAMP])
def test_times_are_compared_as_texts_where_messages_have_them_so(tp: int) -> None:
    of = version([column("at", tp, flag=_KEY)], [Key("PRIMARY", ("at",), primary=True)])
    assert key_bounds(of, "2026-01-02", None).has({"at": "2026-01-03"})
    debezium = reading(ProtocolConfig(protocol="debezium", enable_tidb_extension=True))
    assert isinstance(debezium, MessageReader)
    for low, high in (("2026-01-02", None), (None, "2026-01-02")):
        with pytest.raises(InvalidRequest, match="have the time at in a form of their own: leave out key_from"):
            key_bounds(of, low, high, dated=debezium.dated)


@pytest.mark.parametrize("dated", [False, True])
def test_a_time_of_day_has_no_order_as_a_text(dated: bool) -> None:
    of = version([column("at", t.DURATION, flag=_KEY)], [Key("PRIMARY", ("at",), primary=True)])
    with pytest.raises(InvalidRequest, match=r"texts of a TIME, as at is, have another order .*: leave out key_from"):
        key_bounds(of, "99:00:00", None, dated=dated)
