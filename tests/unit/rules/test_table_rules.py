"""The table filter of TiDB's tools: its grammar, its order, and hostile patterns."""

from __future__ import annotations

import fnmatch
import random
import re
import string
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples, seeds
from tistream.errors import InvalidRequest
from tistream.rules.column_rules import ColumnRules
from tistream.rules.table_rules import RULES_MAX, TableRules

INCLUDED = [
    (["*.*"], "a", "b", True),
    (["a.b"], "a", "b", True),
    (["a.b"], "A", "B", True),
    (["A.B"], "a", "b", True),
    (["a.b"], "a", "bb", False),
    ([], "a", "b", False),
    (["a.*", "!a.b"], "a", "b", False),
    (["!a.b", "a.*"], "a", "b", True),
    (["a.*", "!a.*", "a.b"], "a", "b", True),
    (["# a.b", "", "  "], "a", "b", False),
    (["  a.b  "], "a", "b", True),
    (["a?.b[0-9]"], "ax", "b7", True),
    (["a?.b[0-9]"], "a", "b7", False),
    (["a.b[!0-9]"], "a", "b7", False),
    (["a.b[!0-9]"], "a", "bx", True),
    (["a.?"], "a", "名", True),
    (["名.表"], "名", "表", True),
    (["É.*"], "é", "x", True),
    ([r"a\.b.c"], "a.b", "c", True),
    ([r"a\*.c"], "a*", "c", True),
    ([r"a\*.c"], "ab", "c", False),
    (['"a.b"."c*"'], "a.b", "c*", True),
    (['"a.b"."c*"'], "a.b", "cd", False),
    (['"a""b".c'], 'a"b', "c", True),
    (["`a``b`.c"], "a`b", "c", True),
    (["a$.b_1"], "a$", "b_1", True),
    (["*$.x"], "a$", "x", True),
    (["/^a/./b$/"], "abc", "xb", True),
    (["/^a/./b$/"], "cab", "xb", False),
    ([r"/a\/b/.*"], "xa/by", "t", True),
    (["/^A$/.b"], "a", "b", True),
    ([r"*.b\ c"], "a", "b c", True),
    (["a.b*c"], "a", "b\nc", True),
]


@pytest.mark.parametrize(("rules", "database", "table", "included"), INCLUDED)
def test_a_table_is_included_by_the_last_rule_that_matches(
    rules: list[str], database: str, table: str, included: bool
) -> None:
    assert TableRules.parse(rules).matches(database, table) is included


@pytest.mark.parametrize(
    ("rules", "name", "included"), [(["A.b"], "a", False), (["A.b"], "A", True), (["/^A/.b"], "a", False)]
)
def test_case_counts_if_it_is_asked_for(rules: list[str], name: str, included: bool) -> None:
    assert TableRules.parse(rules, case_sensitive=True).matches(name, "b") is included


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("a", "a dot must stand"),
        ("a.", "a pattern is missing"),
        (".b", "begins without a name"),
        ("a.b.c", "special character '.'"),
        ("a b.c", "special character ' '"),
        ("a.b c", "special character ' '"),
        (r"a\b.c", "not before a letter"),
        ("a.b\\", "the end"),
        ("@rules.txt", "names a file of the server"),
        ("/a.b", "does not end"),
        ('"a.b', "does not end"),
        ('"".b', "is empty"),
        ('"a"x.b', "a dot must stand"),
        ('a."b"x', "follows the pattern"),
        ("a[.b", "range"),
        ("a[].b", "range"),
        ("/(/.b", "regular expression '\\('"),
        ("/(?=a)/.b", "regular expression"),
        (r"/(a)\1/.b", "regular expression"),
        ("/((a{1000}){1000}){1000}/.b", "regular expression"),
        ("a." + "b" * 2_000, "at most 1024"),
        ("!", "a pattern is missing"),
        ("a-b.c", "special character '-'"),
        ("/a\ud800/.b", "UTF-8"),
        ("a\ud800.b", "special character"),
    ],
)
def test_a_rule_that_is_wrong_is_refused_by_name(rule: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        TableRules.parse(["ok.*", rule])
    assert rule[:20] in str(refused.value) or repr(rule[:20])[1:-1] in str(refused.value)


def test_too_many_rules_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="use wildcards"):
        TableRules.parse(["a.b"] * (RULES_MAX + 1))


@pytest.mark.parametrize(
    "rule", ["/(a+)+$/.b", "/(a|aa)+$/.b", "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b.b", "/(.*)*x/.b"]
)
def test_a_catastrophic_pattern_is_matched_in_linear_time(rule: str) -> None:
    # In an engine that backtracks, each takes longer than the universe is old
    assert not TableRules.parse([rule]).matches("a" * 5_000 + "!", "b")


@pytest.mark.parametrize(
    ("rules", "included"),
    [
        (["a.*"], True),
        (["a.b"], True),
        (["*.*", "!a.b"], True),
        (["*.*", "!a.*"], False),
        (["!a.*", "*.x"], True),
        (["b.*"], False),
    ],
)
def test_a_database_is_included_if_a_table_of_it_may_be(rules: list[str], included: bool) -> None:
    assert TableRules.parse(rules).matches_schema("a") is included


def test_rules_that_match_nothing_are_named() -> None:
    rules = TableRules.parse(["a.*", "b.*", "!a.x"])
    assert rules.unused([("a", "t"), ("c", "t")]) == ["b.*", "!a.x"]
    assert rules.unused([]) == ["a.*", "b.*", "!a.x"]


def test_columns_are_chosen_by_the_last_rule_that_matches() -> None:
    rules = ColumnRules.parse(["*", "!secret*", "Secret_id"])
    assert rules.chosen(["id", "secret", "SECRET_ID", "x"]).tolist() == [True, False, True, True]
    with pytest.raises(InvalidRequest, match="column rule 'a b'"):
        ColumnRules.parse(["a b"])


# --- against slow references ---------------------------------------------------------------------------------------

ALPHABET = 'abAB.*?[]!\\`"/$_-0 é'


def reference(rules: list[str], database: str, table: str) -> bool:
    """Rules without escapes and quotes, by Python's fnmatch."""
    out = False
    for rule in rules:
        text = rule.removeprefix("!")
        one, _, other = text.partition(".")
        if all(fnmatch.fnmatchcase(name.lower(), part.lower()) for name, part in ((database, one), (table, other))):
            out = not rule.startswith("!")
    return out


@pytest.mark.parametrize("seed", seeds(40, 2_000))
def test_random_rules_choose_as_the_reference_does(seed: int) -> None:
    rng = random.Random(seed)

    def part() -> str:
        return "".join(
            rng.choices(["a", "b", "B", "1", "*", "?", "[ab]", "[!a]"], [4, 4, 2, 2, 2, 1, 1, 1], k=rng.randrange(1, 5))
        )

    rules = [f"{'!' if rng.random() < 0.3 else ''}{part()}.{part()}" for _ in range(rng.randrange(1, 6))]
    names = [
        ("".join(rng.choices("aAbB1", k=rng.randrange(1, 4))), "".join(rng.choices("ab1", k=2))) for _ in range(30)
    ]
    parsed = TableRules.parse(rules)
    assert parsed.chosen(names).tolist() == [reference(rules, *name) for name in names], rules
    assert all(parsed.matches_schema(name) for name, table in names if parsed.matches(name, table))


@settings(max_examples=examples(2_000), deadline=None)
@given(st.text(ALPHABET, max_size=30), st.text(max_size=8))
def test_any_text_is_a_rule_or_refused(text: str, name: str) -> None:
    with suppress(InvalidRequest):
        TableRules.parse([text]).matches(name, name)


@settings(max_examples=examples(1_000), deadline=None)
@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12))
def test_any_name_can_be_quoted_or_escaped(database: str, table: str, other: str) -> None:
    quoted = TableRules.parse(
        [f'"{database.replace(chr(34), 2 * chr(34))}".`{table.replace("`", "``")}`'], case_sensitive=True
    )
    assert quoted.matches(database, table)
    assert quoted.matches(database, other) == (other == table)

    def escaped(name: str) -> str:
        return re.sub(rf"[{re.escape(string.punctuation + string.whitespace)}\x00-\x1f\x7f]", r"\\\g<0>", name)

    rule = TableRules.parse([f"{escaped(database)}.{escaped(table)}?"], case_sensitive=True)
    assert rule.matches(database, table + "x")
    assert not rule.matches(database, table)
