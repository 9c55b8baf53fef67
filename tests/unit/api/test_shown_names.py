"""What a DDL event shows to whom may read a part of what it concerns."""

from __future__ import annotations

import orjson
import pytest

from tistream.read.events import Ddls, Events
from tistream.schema.ddl_event import DdlEvent
from tistream.wire.tokens import Grant
from tistream_api.auth.access import Resource, allows, allows_part
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.encode.shown_names import ShownNames, shown

RENAME = DdlEvent(
    7, 6, 1, "vault", "salaries", "RENAME TABLE shop.orders TO `Vault`.Salaries", "rename table", 3,
    (("shop", "orders"), ("vault", "salaries")),
)  # fmt: skip
BACK = DdlEvent(
    8, 7, 2, "shop", "orders", "RENAME TABLE vault.salaries TO shop.orders", "rename table", 4,
    (("vault", "salaries"), ("shop", "orders")),
)  # fmt: skip


def reader_of(database: str, table: str = "*"):  # type: ignore[no-untyped-def]
    grants = [Grant(actions=["read"], cluster="7", tenant="acme", database=database, table=table)]

    def may_read(of: str, name: str) -> bool:
        resource = Resource("7", "acme", of, name or None)
        return allows(grants, "read", resource) if name else allows_part(grants, "read", resource)

    return may_read


@pytest.mark.parametrize("event", [RENAME, BACK])
def test_a_table_that_leaves_or_comes_does_not_tell_of_the_other_database(event: DdlEvent) -> None:
    pieces = ShownNames(NdjsonEncoder(), reader_of("shop")).events(Events.ordered([Ddls((event,))]))
    line = b"".join(pieces)
    assert b"vault" not in line.lower()
    assert b"salaries" not in line.lower()
    told = orjson.loads(line)
    assert (told["database"], told["table"], told["action"]) == ("shop", "orders", "rename table")
    assert told["involved"] == [{"database": "shop", "table": "orders"}]
    assert (told["commit_ts"], told["schema_version"]) == (str(event.commit_ts), str(event.schema_version))


def test_a_name_is_found_in_the_query_whatever_its_letters_are_in_lower_case() -> None:
    """Python's lower case of a Σ depends on what follows it."""
    moved = DdlEvent(
        7, 6, 1, "shop", "orders", "RENAME TABLE ΧΡΗΣΤΕΣ.orders TO shop.orders", "rename table", 3,
        (("ΧΡΗΣΤΕΣ", "orders"), ("shop", "orders")),
    )  # fmt: skip
    told = shown(moved, reader_of("shop"))
    assert (told.query, told.involved) == ("", (("shop", "orders"),))


def test_who_may_read_both_is_shown_all_of_it() -> None:
    assert shown(RENAME, lambda *_: True) == RENAME


def test_the_tables_of_a_database_that_goes_are_those_that_may_be_read() -> None:
    dropped = DdlEvent(
        9, 8, 3, "shop", "", "drop database shop", "drop schema", 5,
        (("shop", ""), ("shop", "orders"), ("shop", "salaries")),
    )  # fmt: skip
    told = shown(dropped, reader_of("shop", "orders"))
    assert told.involved == (("shop", ""), ("shop", "orders"))
    assert (told.query, told.database, told.table) == ("drop database shop", "shop", "")


def test_a_name_with_quotes_in_it_is_found_in_the_query() -> None:
    query = "rename table shop.orders to shop.`pay``roll`"
    odd = DdlEvent(9, 8, 3, "shop", "pay`roll", query, "rename table", 5, (("shop", "orders"), ("shop", "pay`roll")))
    told = shown(odd, reader_of("shop", "orders"))
    assert (told.query, told.table, told.involved) == ("", "orders", (("shop", "orders"),))
