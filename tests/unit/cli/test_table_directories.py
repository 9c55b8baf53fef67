"""Directories that are named by table stay inside of theirs, whatever the table is called."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.targets import files
from tistream_client.cli.pull.files import directory_of

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=64)


@pytest.mark.parametrize(
    ("database", "table", "wanted"),
    [
        ("shop", "orders", "shop.orders"),
        ("..", "..", "%2E%2E.%2E%2E"),
        ("a/b", "c\\d", "a%2Fb.c%5Cd"),
        ("a.b", "c", "a%2Eb.c"),
        ("a", "b.c", "a.b%2Ec"),
        ("nul\0", "-rf ~", "nul%00.-rf%20%7E"),
        ("名", "表", "%E5%90%8D.%E8%A1%A8"),
    ],
)
def test_names_in_words(database: str, table: str, wanted: str) -> None:
    assert directory_of(database, table) == wanted


@given(NAMES, NAMES)
def test_any_name_is_one_part_of_a_path_and_no_hidden_one(database: str, table: str) -> None:
    name = directory_of(database, table)
    assert PurePosixPath(name).parts == (name,)
    assert len(name.encode()) <= 255
    assert not name.startswith(".")
    assert name not in ("ddl", "end.json")


@given(NAMES, NAMES, NAMES, NAMES)
def test_different_tables_have_different_directories(one: str, two: str, three: str, four: str) -> None:
    assert (directory_of(one, two) == directory_of(three, four)) == ((one, two) == (three, four))


@given(NAMES, NAMES)
def test_the_client_and_the_platform_name_them_alike(database: str, table: str) -> None:
    assert directory_of(database, table) == files.directory_of(database, table)
