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


def keyed(tp: int, *elems: str) -> TableVersion:
    more = {"Elems": list(elems)} if elems else {}
    return version([column("k", tp, flag=_KEY, **more)], [Key("PRIMARY", ("k",), primary=True)])


SIZES = [str(number) for number in range(1, 11)]  # names that look like numbers, of which the tenth is below the second


@pytest.mark.parametrize(
    ("of", "low", "high", "inside", "outside"),
    [
        (keyed(t.ENUM, "small", "large", "huge"), "large", None, ["2", "3", 3], ["1", "0"]),
        (keyed(t.ENUM, *"abcdefghijk"), "b", "j", ["2", "10", 9], ["1", "11"]),  # as texts, "10" is below "2"
        (keyed(t.ENUM, *"abcdefghijk"), "9", "10", ["9", "10"], ["8", "11"]),
        (keyed(t.ENUM, *reversed(SIZES)), "10", "9", ["1", "2"], ["3", "0"]),  # a name, and not the number
        (keyed(t.ENUM, "a"), "", "", ["0"], ["1"]),
        (keyed(t.SET, "r", "w", "x"), "w", "r,x", ["2", "5", 3], ["1", "7", "0"]),
        (keyed(t.SET, *"abcdefghijkl"), "", "1024", ["0", "9", "1024"], ["1025"]),
        (keyed(t.BIT), "9", "10", ["9", 10], ["8", "100"]),
    ],
)
def test_members_and_bits_are_compared_by_their_numbers_as_the_table_does(
    of: TableVersion, low: str, high: str | None, inside: list[object], outside: list[object]
) -> None:
    bounds = key_bounds(of, low, high)
    assert [bounds.has({"k": key}) for key in inside] == [True] * len(inside)
    assert [bounds.has({"k": key}) for key in outside] == [False] * len(outside)


def test_names_of_members_are_compared_by_their_numbers_where_messages_have_them() -> None:
    enum = key_bounds(keyed(t.ENUM, "small", "large", "huge"), "large", None, numbered=False)
    assert [enum.has({"k": name}) for name in ("huge", "large", "small", "")] == [True, True, False, False]
    flags = key_bounds(keyed(t.SET, "r", "w", "x"), "w", "r,x", numbered=False)
    assert [flags.has({"k": name}) for name in ("w", "r,x", "x", "r", "w,x")] == [True, True, True, False, False]
    with pytest.raises(InvalidRequest, match="has k as 'former', not one of small, large: the column had another type"):
        key_bounds(keyed(t.ENUM, "small", "large"), "large", None, numbered=False).has({"k": "former"})
    with pytest.raises(InvalidRequest, match="key_from 'former' is not one of small, large, as k is"):
        key_bounds(keyed(t.ENUM, "small", "large"), "former", None)
    with pytest.raises(InvalidRequest, match="have the bits of k in a form of their own: leave out key_from"):
        key_bounds(keyed(t.BIT), "1", None, numbered=False)
