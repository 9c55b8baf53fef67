"""Lists of rules are split at their commas, and not inside a rule."""

from __future__ import annotations

import pytest

from tistream.rules.rule_list import split_rules
from tistream.rules.table_rules import TableRules


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("shop.*", ["shop.*"]),
        (" shop.*, !shop.secret ,", ["shop.*", "!shop.secret"]),
        ('"a,b"."c""d,e",x.y', ['"a,b"."c""d,e"', "x.y"]),
        ("`a,b`.c", ["`a,b`.c"]),
        (r"/^t{1,2}$/./a\/,b/,x.y", [r"/^t{1,2}$/./a\/,b/", "x.y"]),
        (r"a\,b.c,d.[a,b]", [r"a\,b.c", "d.[a,b]"]),
        ('"open, shop', ['"open', "shop"]),
        ("", []),
    ],
)
def test_a_comma_inside_a_rule_does_not_end_it(text: str, rules: list[str]) -> None:
    assert split_rules(text) == rules


def test_what_was_split_matches_as_it_was_meant() -> None:
    rules = TableRules.parse(split_rules('"a,b".*,/^t{1,2}$/.x,!*.secret'))
    assert rules.matches("a,b", "t")
    assert rules.matches("tt", "x")
    assert not rules.matches("a,b", "secret")
