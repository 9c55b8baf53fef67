"""The handles for which an expression can be true: never too few, and exact for plain comparisons of the key."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.feed_tables import Key, column, version
from tistream.filters.expression import Expression
from tistream.filters.key_ranges import RANGES_MAX, HandleRange, handle_ranges
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Table
from tistream.schema.visible import TableVersion

KEY = t.FLAG_NOT_NULL | t.FLAG_PRIMARY
PRIMARY = [Key("PRIMARY", ("id",), primary=True)]
SIGNED = version([column("id", flag=KEY), column("n")], PRIMARY, pk_is_handle=True)
UNSIGNED = version([column("id", flag=KEY | t.FLAG_UNSIGNED), column("n")], PRIMARY, pk_is_handle=True)
TOP, SIGN = 2**64 - 1, 2**63
NUMBERS = {
    SIGNED.table.columns[0].unsigned: [-SIGN, -SIGN + 1, -7, -1, 0, 1, 2, 5, 6, 7, SIGN - 1],
    UNSIGNED.table.columns[0].unsigned: [0, 1, 2, 5, 6, 7, SIGN - 1, SIGN, SIGN + 1, TOP],
}


def handle(table: Table, number: int) -> bytes:
    """The handle of a row, as TiKV orders it: its signed number with the sign bit turned."""
    signed = number - 2**64 if number >= SIGN else number
    return (signed + SIGN).to_bytes(8, "big")


def covers(ranges: tuple[HandleRange, ...] | None, key: bytes) -> bool:
    return ranges is None or any(one.low <= key and (one.high is None or key < one.high) for one in ranges)


def random_condition(rng: random.Random, depth: int = 3) -> str:
    if depth and rng.random() < 0.6:
        one, other = (random_condition(rng, depth - 1) for _ in range(2))
        return rng.choice(
            [f"({one}) and ({other})", f"({one}) or ({other})", f"not ({one})", f"({one}) is true", f"({one}) is false"]
        )
    some = [*(str(one) for ones in NUMBERS.values() for one in ones), "5.5", "-0.5", str(TOP + 1), "1e1", "'5'", "null"]
    a, b = rng.choice(some), rng.choice(some)
    how = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    choices = [f"id {how} {a}", f"{a} {how} id", f"id in ({a}, {b})", f"id between {a} and {b}"]
    return rng.choice([*choices, f"id not in ({a}, {b})", f"id not between {a} and {b}", f"n {how} 5", "n is null"])


@pytest.mark.parametrize("of", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
@settings(max_examples=examples(600), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_row_for_which_a_condition_is_true_is_in_its_ranges(of: TableVersion, seed: int) -> None:
    table, expression = of.table, Expression.parse(random_condition(random.Random(seed)))
    numbers = NUMBERS[table.columns[0].unsigned]
    kind = pa.uint64() if table.columns[0].unsigned else pa.int64()
    used = expression.columns(table)
    arrays = {"id": pa.array(numbers, kind), "n": pa.array([None, *[5] * (len(numbers) - 1)], pa.int64())}
    true = expression.true_of(used, [arrays[one.name] for one in used], len(numbers))
    ranges = handle_ranges(expression, table)
    for number, one in zip(numbers, true, strict=True):
        assert not one or covers(ranges, handle(table, number)), (expression.text, number)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("id = 5", {5}),
        ("5 = id", {5}),
        ("id in (1, 7, null)", {1, 7}),
        ("id between 2 and 6 and n > 0", {2, 5, 6}),
        ("id > 6", {7, SIGN - 1}),
        ("id >= 5.5 and id <= 6.5", {6}),
        ("id < -7 or id = 0", {-SIGN, -SIGN + 1, 0}),
        ("not (id > 1 or id < 0)", {0, 1}),
        ("id = 5 and id = 6", set()),
        ("id = 0.5", set()),
        ("n = 5", set(NUMBERS[False])),
        ("id = 5 or n = 5", set(NUMBERS[False])),
        ("id + 1 = 5", set(NUMBERS[False])),
    ],
)
def test_plain_conditions_of_the_key_have_exact_ranges(text: str, inside: set[int]) -> None:
    ranges = handle_ranges(Expression.parse(text), SIGNED.table)
    assert {one for one in NUMBERS[False] if covers(ranges, handle(SIGNED.table, one))} == inside


def test_large_unsigned_keys_are_stored_below_the_small_ones() -> None:
    ranges = handle_ranges(Expression.parse("id >= 7"), UNSIGNED.table)
    inside = {one for one in NUMBERS[True] if covers(ranges, handle(UNSIGNED.table, one))}
    assert inside == {7, SIGN - 1, SIGN, SIGN + 1, TOP}


@pytest.mark.parametrize("text", ["id = 1", "id > 1"])
def test_a_table_whose_handle_is_no_integer_has_no_ranges(text: str) -> None:
    assert handle_ranges(Expression.parse(text), version([column("id")]).table) is None


def test_ranges_ascend_by_handle_on_both_sides_of_2_to_the_63() -> None:
    ranges = handle_ranges(Expression.parse(f"id in (1, {SIGN}, {TOP})"), UNSIGNED.table)
    assert ranges is not None
    assert [one.low for one in ranges] == [handle(UNSIGNED.table, one) for one in (SIGN, TOP, 1)]
    joined = handle_ranges(Expression.parse(f"id in (0, {TOP})"), UNSIGNED.table)
    assert joined == (HandleRange(handle(UNSIGNED.table, TOP), handle(UNSIGNED.table, 1)),)


def test_of_many_ranges_the_narrowest_gaps_are_closed() -> None:
    some = [thousand * 1_000 + 2 * at for thousand in range(RANGES_MAX) for at in range(20)]
    text = f"id in ({', '.join(map(str, some))}) and id in ({', '.join(map(str, reversed(some)))})"
    ranges = handle_ranges(Expression.parse(text), SIGNED.table)
    assert ranges == tuple(
        HandleRange(handle(SIGNED.table, low), handle(SIGNED.table, low + 39)) for low in range(0, 32_000, 1_000)
    )
