"""Names of tables that a restore or an undo is about."""

from __future__ import annotations

import pytest

from tistream.restore.table_names import TableNames, distinct, parse_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("shop.orders", TableNames("shop", "orders")),
        ("shop", TableNames("shop")),
        ("shop.*", TableNames("shop")),
        ("*", TableNames()),
        ("*.*", TableNames()),
        ("`a.b`.`c``d`", TableNames("a.b", "c`d")),
        ("`*`.`x y`", TableNames("*", "x y")),
        ("ÄÖ.t-1", TableNames("ÄÖ", "t-1")),
    ],
)
def test_names_are_parsed_and_shown_so_that_they_parse_again(text: str, names: TableNames) -> None:
    assert parse_names(text) == names
    assert parse_names(str(names)) == names


@pytest.mark.parametrize("text", ["", ".", "a.", ".b", "a.b.c", "*.t", "a b", "`a", "a`b", "``", "a*", "a.b; DROP"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        parse_names(text)


@pytest.mark.parametrize("text", ["mysql", "MySQL.user", "`information_schema`.tables"])
def test_system_schemas_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="system schema"):
        parse_names(text)


def test_no_table_is_in_two_of_the_names() -> None:
    names = [parse_names(text) for text in ("shop.orders", "SHOP.Orders", "crm.x", "shop", "crm.y")]
    assert distinct(names) == [TableNames("crm", "x"), TableNames("shop"), TableNames("crm", "y")]
    assert distinct([*names, TableNames()]) == [TableNames()]
