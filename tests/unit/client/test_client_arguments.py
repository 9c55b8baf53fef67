"""Each wrong argument of the client is refused before anything is sent, by its name, with a right value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tistream_client import (
    AsyncTiStream,
    FileCheckpoint,
    SqlCheckpoint,
    TiStream,
    WrongArgument,
)
from tistream_client.sync.client import Tenant
from tistream_client.transport import Door

URL = "http://127.0.0.1:1"
EARLY, LATE = "2026-11-20T14:00:00Z", "2026-11-20T15:00:00Z"


@pytest.fixture(scope="module")
def tenant() -> Tenant:
    return TiStream(URL).tenant("7", "acme")


@pytest.mark.parametrize("client", [TiStream, AsyncTiStream])
@pytest.mark.parametrize(
    ("how", "argument", "right"),
    [
        ({"url": "127.0.0.1:8000"}, "url", 'right: "http://127.0.0.1:8000"'),
        ({"url": "ftp://host"}, "url", "does not begin with http"),
        ({"url": "http://"}, "url", "names no host"),
        ({"url": "http://host:x"}, "url", "is no URL"),
        ({"url": "http://host/?a=b"}, "url", "has a query"),
        ({"url": "http://host:8000/v1/"}, "url", 'right: "http://host:8000"'),
        ({"url": None}, "url", "is None"),
        ({"url": "ftp://me:secret@host"}, "url", "has a user"),
        ({"url": "http://me:secret@host:x"}, "url", "has a user"),
        ({"token_file": "/no/such"}, "token_file", "cannot be read"),
        ({"token": "two words"}, "token", "tistream token create --out FILE"),
        ({"token": "a", "token_file": "b"}, "token", "one of them"),
        ({"retry_for": -1}, "retry_for", "right: retry_for=60, or None"),
        ({"retry_for": "60"}, "retry_for", "is '60'"),
        ({"url": "https://host", "ca_file": "/no/such"}, "ca_file", "a readable PEM file"),
        ({"url": "https://host", "cert_file": "/no/such"}, "cert_file", "a readable PEM pair"),
    ],
)
def test_arguments_of_a_client(client: Callable[..., Any], how: dict[str, Any], argument: str, right: str) -> None:
    with pytest.raises(WrongArgument) as refused:
        client(**{"url": URL, **how})
    assert refused.value.argument == argument
    assert right in str(refused.value)
    assert str(refused.value).startswith(argument)


@pytest.mark.parametrize(
    ("wrong", "argument", "right"),
    [
        (lambda one: one.changes("shop", "orders", since="x"), "since", '"10m"'),
        (lambda one: one.changes("shop", "orders", until=1.5), "until", '"10m"'),
        (lambda one: one.changes("shop", "orders", since=LATE, until=EARLY), "until", 'since="2h", until="1h"'),
        (lambda one: one.changes("shop", "orders", columns="id"), "columns", 'columns=["id", "total"]'),
        (lambda one: one.changes("shop", "orders", columns=[]), "columns", 'columns=["id", "total"]'),
        (lambda one: one.changes("shop", "orders", columns=["id", "id"]), "columns", "names 'id' twice"),
        (lambda one: one.changes("shop", "orders", events="row"), "events", "'all', 'rows', 'ddl'"),
        (lambda one: one.changes("shop", "orders", page_size=0), "page_size", "page_size=10_000"),
        (lambda one: one.changes("shop", "orders", cursor=""), "cursor", "the cursor of a page"),
        (lambda one: one.changes(None, "orders"), "database", 'changes("shop", "orders")'),
        (lambda one: one.changes("", "orders"), "database", '"shop"'),
        (lambda one: one.changes("shop").batches().__next__(), "table", 'changes("shop", "orders")'),
        (lambda one: one.changes("shop", "orders", events="ddl").to_arrow(), "events", 'events="rows"'),
        (lambda one: next(one.changes("shop", until=LATE).follow()), "until", "pages()"),
        (lambda one: one.table("orders"), "table", '"shop.orders"'),
        (lambda one: one.table("a.b.c"), "table", '"shop.orders"'),
        (lambda one: one.table("shop", 5), "table", '"shop", "orders"'),
        (lambda one: one.rows("shop", "orders", at="yesterday"), "at", '"now"'),
        (lambda one: one.rows("shop", "orders", key={}), "key", 'key={"id": 1}'),
        (lambda one: one.rows("shop", "orders", key={"id": None}), "key", 'key={"id": 1}'),
        (lambda one: one.rows("shop", "orders", key={"id": 1}, to_key={"id": 2}), "key", "from_key= and to_key="),
        (lambda one: one.rows("shop", "orders", page_size=10**7), "page_size", "at most 1000000"),
        (lambda one: one.databases(at="x"), "at", '"now"'),
        (lambda one: one.tables(""), "database", '"shop"'),
        (lambda _: TiStream(URL).tenant("7/acme", "acme"), "cluster", 'tenant("7", "acme")'),
        (lambda _: TiStream(URL).tenant(None, "acme"), "cluster", 'tenant("7", "acme")'),
        (lambda _: TiStream(URL).tenant(7, ""), "tenant", 'tenant("7", "acme")'),
        (lambda _: FileCheckpoint("/no/such/folder/cursor"), "path", '"orders.cursor"'),
        (lambda _: SqlCheckpoint(""), "name", '"orders-copy"'),
        (lambda acme: acme.changes("shop", "orders", where=""), "where", 'where="total > 100"'),
        (lambda acme: acme.changes("shop", "orders", where=5), "where", 'where="total > 100"'),
        (lambda acme: acme.rows("shop", "orders", where=" "), "where", 'where="total > 100"'),
        (lambda acme: acme.changes(operations="insert"), "operations", 'operations=["insert", "update"]'),
        (lambda acme: acme.changes(operations=["inserts"]), "operations", "insert, update, delete"),
        (lambda acme: acme.changes(tables="shop.*"), "tables", '"!shop.secret"'),
        (lambda acme: acme.changes(tables=[""]), "tables", '"!shop.secret"'),
        (lambda acme: acme.changes("shop", "orders", tables=["shop.*"]), "tables", 'tables=["shop.or*"]'),
        (lambda _: SqlCheckpoint("a", table=""), "table", '"tistream_checkpoints"'),
    ],
)
def test_arguments_of_calls(tenant: Tenant, wrong: Callable[[Any], object], argument: str, right: str) -> None:
    with pytest.raises(WrongArgument) as refused:
        wrong(tenant)
    assert refused.value.argument == argument
    assert right in str(refused.value).partition("; right: ")[2] + str(refused.value)
    assert isinstance(refused.value, ValueError)


def test_no_secret_is_in_a_text() -> None:
    with pytest.raises(WrongArgument) as refused:
        TiStream("http://me:secret@host")
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(Door(URL, "secret"))


def test_a_cluster_may_have_a_number_or_a_name() -> None:
    assert [repr(TiStream(URL).tenant(one, "acme")) for one in (7, "7", "eu-1")] == [
        "Tenant(7/acme)", "Tenant(7/acme)", "Tenant(eu-1/acme)",
    ]  # fmt: skip


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cursor").write_text("[]")
    with pytest.raises(WrongArgument, match="cannot be read as a checkpoint"):
        FileCheckpoint(tmp_path / "cursor").load()
