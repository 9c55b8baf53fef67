"""Filter expressions: what is refused and how, and NULL logic. test_expressions_on_mariadb.py has the rest."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import filter_cases
from support.effort import examples
from support.feed_tables import Change, batch, column, version
from tistream.errors import InvalidRequest
from tistream.filters import comparison
from tistream.filters.collation import comparable
from tistream.filters.expression import Expression

ROWS = filter_cases.rows(1, 40)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "one condition is needed"),
        ("n = 1; drop table t", "one condition is needed"),
        ("n =", "cannot be parsed: an operand of EQ is missing. Line 1"),
        ("((n", "cannot be parsed"),
        ("lower(b) = 'x'", "LOWER in .* is not supported"),
        ("sleep(5)", "is not supported"),
        ("(select 1)", "SUBQUERY in .* is not supported"),
        ("n in (select 1)", "query is not supported"),
        ("n = 1 xor m = 1", "XOR in .* is not supported"),
        ("case when n then m end", "CASE in .* is not supported"),
        ("b rlike 'x'", "is not supported"),
        ("n & 1", "BITWISEAND in .* is not supported"),
        ("0x41 = n", "HEXSTRING in .* is not supported"),
        ("@x = 1", "is not supported"),
        ("b collate utf8mb4_bin = 'a'", "COLLATE in .* is not supported"),
        ("cast(n as char) = '1'", "CAST in .* is not supported"),
        ("n /* one */ = 1", "comments are not supported"),
        ("t.n = 1", "table is not supported"),
        ("n is unknown_thing", "no column 'unknown_thing'"),
        ("n is 5", "only IS NULL"),
        ("n = " + "1" * 70, "70 digits"),
        ("n = 1 " + "and n = 1 " * 3_000, "at most 16384"),
        ("(" * 500 + "n" + ")" * 500, "deep"),
        ("not " * 100 + "n", "deep"),
        ("b = n", "is not a number"),
        ("b", "is not a condition"),
        ("b = 5", "is not a number"),
        ("n = 'x'", "is not a number"),
        ("da = 'yesterday'", "is not a date"),
        ("da = 5", "is not a number"),
        ("ti = 'noon'", "is not a time"),
        ("ti = da", "types differ"),
        ("v = n", "is not a number"),
        ("b = g", "different collations"),
        ("c < 'b'", "by =, <>, IN and LIKE only"),
        ("n like '5'", "is not a text"),
        ("b like g", "must be a quoted text"),
        ("b like 'x' escape 'ab'", "ESCAPE needs"),
        ("n / 2 = 1", "needs a floating-point number"),
        ("d % 2 = 1", "needs two integers"),
        ("n % u = 1", "needs two integers"),
        ("n * n * n * n = 1", "cannot be evaluated"),
        (f"n in ({'1,' * 4_096}1)", "4097 values: at most 4096"),
        ("nope = 1", "has no column 'nope'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        filter_cases.true_of(text, ROWS)
    assert "expression" in str(refused.value)


def test_a_virtual_column_is_refused() -> None:
    virtual = {**column("v"), "generated_expr_string": "`id` + 1", "generated_stored": False}
    with pytest.raises(InvalidRequest, match="is virtual"):
        Expression.parse("V > 1").columns(version([column("id"), virtual]).table)


@pytest.mark.parametrize("name", ["j", "x"])
def test_documents_and_vectors_can_only_be_null(name: str) -> None:
    of = version([column("j", 245), column("x", 225)])
    column_ = next(one for one in of.table.columns if one.name == name)
    empty = batch(of, []).new[column_.offset]
    Expression.parse(f"{name} is not null").fits(of.table, lambda _: empty)
    with pytest.raises(InvalidRequest, match="IS NULL only"):
        Expression.parse(f"{name} = '1'").fits(of.table, lambda _: empty)


NULL_LOGIC = [
    ("null and false", False),
    ("not (null and false)", True),
    ("null and true", False),
    ("null or true", True),
    ("null or false", False),
    ("not null", False),
    ("null is null", True),
    ("null <=> null", True),
    ("null = null", False),
    ("1 in (2, null)", False),
    ("not (1 in (2, null))", False),
    ("1 in (1, null)", True),
    ("null between 1 and 2", False),
    ("not (3 between null and 2)", True),
    ("null like 'x'", False),
    ("null is true", False),
    ("null is not true", True),
    ("1 + null is null", True),
    ("1 % 0 is null", True),
    ("1e0 / 0 is null", True),
    ("-null is null", True),
]


@pytest.mark.parametrize(("text", "true"), NULL_LOGIC)
def test_null_is_neither_true_nor_false(text: str, true: bool) -> None:
    assert set(filter_cases.true_of(text, ROWS)) == {true}


def test_a_column_that_is_numbered_gives_the_same_rows() -> None:
    of = version([column("e", 247, Elems=["a", "b"]), column("s", 248, Elems=["x", "y"])])
    names = batch(of, [Change(None, {"e": "b", "s": "x,y"})]).new
    columns = of.table.columns
    numbers = [pa.array([2], pa.uint64()), pa.array([3], pa.uint64())]
    for text, true in [
        ("e = 'B'", False),
        ("e = 'b' and e = 2", True),
        ("s = 'x,y' and s = 3", True),
        ("s = 1", False),
    ]:
        expression = Expression.parse(text)
        used = expression.columns(of.table)
        for arrays in (names, numbers):
            chosen = [arrays[columns.index(one)] for one in used]
            assert expression.true_of(used, chosen, 1).tolist() == [true], text


@settings(max_examples=examples(2_000), deadline=None)
@given(st.text("nm=<>!()'\"`%_ andorit1,.*/+-#;\\0x@?[]{}:|&é\n", max_size=40))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with suppress(InvalidRequest):
        filter_cases.true_of(text, ROWS[:3])


def test_a_mutated_expression_is_evaluated_or_refused() -> None:
    rng = random.Random(0)
    words = " ".join(filter_cases.expressions()).split()
    for _ in range(300):
        with suppress(InvalidRequest):
            filter_cases.true_of(" ".join(rng.choices(words, k=rng.randrange(1, 9))), ROWS[:3])


def test_an_unknown_column_is_refused_with_the_near_name() -> None:
    of = version([column("id"), column("total")]).table
    with pytest.raises(InvalidRequest, match=r"has no column 'totl' \(did you mean total\?\)"):
        Expression.parse("totl > 1").columns(of)


@pytest.mark.parametrize("name", ["n", "u", "d", "b", "g", "c", "da", "ti"])
def test_in_is_true_of_the_rows_that_equal_one_of_its_members(name: str) -> None:
    constants = {"da": ["'2024-02-29'", "'2000-01-01'"], "ti": ["'12:00:00'", "'-01:00:00.5'"]}
    texts = ["'a'", "'A '", "'ä'", "''", "'5'"]
    numbers = ["5", "'5'", "-1", "0.5", "1e1", "18446744073709551615"]
    some = [*constants.get(name, texts if name in "bgc" else numbers), "null", name]
    for count in (1, 2, len(some) - 1, len(some)):
        members = some[:count]
        either = " or ".join(f"{name} = {one}" for one in members)
        for how in ("{}", "not ({})", "({}) is null"):
            found = filter_cases.true_of(how.format(f"{name} in ({', '.join(members)})"), ROWS)
            assert list(found) == list(filter_cases.true_of(how.format(either), ROWS)), (members, how)


def test_a_column_is_converted_once_however_often_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = []

    def counted(texts: Any, collation: str, *, ordered: bool) -> Any:
        arrays.extend([texts] if isinstance(texts, pa.Array) else [])
        return comparable(texts, collation, ordered=ordered)

    monkeypatch.setattr(comparison, "comparable", counted)
    filter_cases.true_of(f"c in ({', '.join(repr(str(one)) for one in range(50))}) or c = 'a' or c = 'b'", ROWS)
    assert len(arrays) == 1
