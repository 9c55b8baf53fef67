"""The range of keys to which a comparison of messages is limited."""

from __future__ import annotations

import pytest

from support.feed_tables import Key, column, version
from tistream.errors import InvalidRequest
from tistream.schema.tidb import table as t
from tistream.schema.visible import TableVersion
from tistream_changefeed.verify.key_bounds import key_bounds

_KEY = t.FLAG_PRIMARY | t.FLAG_NOT_NULL
NUMBERED = version([column("v"), column("id", flag=_KEY)], pk_is_handle=True)
PAIR = [column("name", t.VARCHAR, flag=_KEY), column("n", flag=_KEY)]
NAMED = version(PAIR, [Key("PRIMARY", ("n", "name"), primary=True)])  # the table's order counts
PRICED = version([column("price", t.DECIMAL, flag=_KEY)], [Key("PRIMARY", ("price",), primary=True)])


@pytest.mark.parametrize(
    ("of", "low", "high", "inside", "outside"),
    [
        (NUMBERED, "9", "100", [{"id": 9}, {"id": "100"}, {"id": 50, "v": 0}], [{"id": 8}, {"id": "101"}, {}]),
        (NUMBERED, None, "9", [{"id": -1}, {"id": "9"}], [{"id": 10}, {"id": None}]),
        (NUMBERED, "9", None, [{"id": 1 << 63}], [{"id": 8}]),
        (NAMED, "b", "ca", [{"n": 0, "name": "b"}, {"name": "ca"}], [{"name": "a"}, {"name": "cb"}, {"n": 1}]),
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
        (version([column("a")]), "1", None, r"table d\.t has no key"),
    ],
)
def test_a_range_that_no_key_is_in_is_refused(of: TableVersion, low: str, high: str | None, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        key_bounds(of, low, high)
