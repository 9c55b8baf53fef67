"""Restores in the meta database: who may run one, which reports count, and what is shown of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy import update

from support.audit_world import ACME as PATH
from support.audit_world import World
from tistream.errors import ClaimEnded, LimitReached, UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.restores import (
    MySqlPlace,
    NewRestore,
    ParquetPlace,
    RestoreName,
    RestoreReport,
    RestoreTable,
    State,
)
from tistream_meta.database import tables
from tistream_meta.decide import restore_policy
from tistream_meta.decide.restore_policy import KEPT_MAX, UNFINISHED_MAX, Restore
from tistream_meta.restores.book import RestoreBook

ACME = TenantKey("7", "acme")
SECRET = "secret-folder/copy.dsn"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.tenant("acme")
    world.tenant("other")
    return world


@pytest.fixture
def book(world: World) -> RestoreBook:
    return world.repository.part(RestoreBook)


def wanted(number: int) -> NewRestore:
    return NewRestore(
        restore_id=f"{number:032x}",
        ts="42",
        tables=[RestoreName(database="shop", table="orders")],
        target=MySqlPlace(kind="mysql", dsn_file=SECRET),
        if_exists="fail",
    )


def report(epoch: int, state: Literal["running", "done", "failed"] = "running", rows_done: int = 1) -> RestoreReport:
    table = RestoreTable(database="shop", table="orders", rows=2, rows_done=rows_done)
    return RestoreReport(epoch=epoch, state=state, tables=[table])


def expire(book: RestoreBook) -> None:
    book._write(lambda connection: connection.execute(update(tables.restores).values(lease_until_ms=0)))


def test_a_restore_is_added_once_for_each_id_and_claimed_by_one_process(book: RestoreBook) -> None:
    assert book.add(ACME, wanted(1)) == book.add(ACME, wanted(1))
    found = book.claim("ingest-1")
    assert found is not None
    assert (found.state, found.epoch, found.node_id) == ("running", 1, "ingest-1")
    assert book.claim("ingest-2") is None


def test_a_process_whose_lease_expired_is_fenced_by_the_next_claim(book: RestoreBook) -> None:
    book.add(ACME, wanted(1))
    first = book.claim("ingest-1")
    expire(book)
    second = book.claim("ingest-2")
    assert first is not None
    assert second is not None
    assert (second.epoch, second.restore_id) == (2, first.restore_id)
    with pytest.raises(ClaimEnded, match="epoch 2"):
        book.report(ACME, first.restore_id, report(first.epoch, "done"))
    assert book.report(ACME, first.restore_id, report(second.epoch)).state == "running"


def test_a_report_renews_the_lease(book: RestoreBook) -> None:
    book.add(ACME, wanted(1))
    assert book.claim("ingest-1") is not None
    expire(book)
    book.report(ACME, wanted(1).restore_id, report(1))
    assert book.claim("ingest-2") is None


@pytest.mark.parametrize("state", ["done", "failed"])
def test_an_ended_restore_is_not_claimed_cancelled_or_reported_again(
    book: RestoreBook, state: Literal["done", "failed"]
) -> None:
    book.add(ACME, wanted(1))
    book.claim("ingest-1")
    book.report(ACME, wanted(1).restore_id, report(1, state))
    expire(book)
    assert book.claim("ingest-2") is None
    assert book.cancel(ACME, wanted(1).restore_id).state == state
    with pytest.raises(ClaimEnded, match=state):
        book.report(ACME, wanted(1).restore_id, report(1))


def test_a_cancelled_restore_ends_at_its_next_report(book: RestoreBook) -> None:
    book.add(ACME, wanted(1))
    book.claim("ingest-1")
    assert book.cancel(ACME, wanted(1).restore_id).state == "cancelled"
    with pytest.raises(ClaimEnded, match="cancelled"):
        book.report(ACME, wanted(1).restore_id, report(1))


def test_a_tenant_has_a_limited_number_of_unfinished_restores(book: RestoreBook) -> None:
    for number in range(UNFINISHED_MAX):
        book.add(ACME, wanted(number))
    with pytest.raises(LimitReached, match="cancel one"):
        book.add(ACME, wanted(99))
    book.cancel(ACME, wanted(0).restore_id)
    book.add(ACME, wanted(99))


def test_a_restore_is_not_seen_from_another_tenant(book: RestoreBook) -> None:
    other = TenantKey("7", "other")
    book.add(ACME, wanted(1))
    assert book.of_tenant(other) == []
    for call in (book.one, book.cancel):
        with pytest.raises(UnknownName):
            call(other, wanted(1).restore_id)
    with pytest.raises(UnknownName):
        book.add(TenantKey("7", "none"), wanted(1))
    with pytest.raises(UnknownName):
        book.report(other, wanted(1).restore_id, report(1))


def test_answers_and_the_audit_log_do_not_show_the_dsn_file(world: World) -> None:
    answers = [world.ask("POST", f"{PATH}/restores", wanted(1).model_dump(mode="json"))]
    answers.append(world.ask("GET", f"{PATH}/restores"))
    work = world.ask("POST", "/upcall/v1/restores/claims", {"node_id": "ingest-1"})["restore"]
    assert work["wanted"]["target"]["dsn_file"] == SECRET
    path = f"/upcall{PATH}/restores/{wanted(1).restore_id}/reports"
    answers.append(world.ask("POST", path, report(1).model_dump(mode="json")))
    answers.append(world.ask("DELETE", f"{PATH}/restores/{wanted(1).restore_id}"))
    answers.append(world.ask("GET", f"{PATH}/restores/{wanted(1).restore_id}"))
    assert answers[-1]["state"] == "cancelled"
    assert answers[-1]["tables"] == [
        {"database": "shop", "table": "orders", "rows": 2, "rows_done": 1, "checksum": None}
    ]
    entries = [one for one in world.entries() if "restore" in one["subject"]]
    assert [one["action"] for one in entries] == ["CreateRestore", "CancelRestore"]
    assert entries[0]["became"] == {"ts": "42", "target": "mysql", "if_exists": "fail", "tables": ["shop.orders"]}
    assert "secret" not in str(answers) + str(entries)


def test_a_tenant_that_is_being_deleted_has_no_restore_run(book: RestoreBook, world: World) -> None:
    book.add(ACME, wanted(1))
    world.ask("PUT", f"{PATH}/deletion", {"confirm": "acme", "grace_ms": "86400000"})
    assert book.claim("ingest-1") is None


def test_the_oldest_is_claimed_first_and_old_ended_ones_are_forgotten() -> None:
    def one(number: int, state: State) -> Restore:
        return Restore(ACME, f"{number:032x}", state, 0, None, 0, number, "", "", None)

    queued = [one(number, "queued") for number in (3, 1, 2)]
    assert restore_policy.next_claim(queued, 10) == queued[1]
    assert restore_policy.next_claim([one(1, "done")], 10) is None
    ended = [one(number, "done") for number in range(KEPT_MAX + 2)]
    assert restore_policy.surplus([*ended, *queued]) == ended[:2]


def test_a_place_of_an_unknown_kind_is_refused() -> None:
    body = {**wanted(1).model_dump(mode="json"), "target": {"kind": "iceberg", "url": "s3://a"}}
    with pytest.raises(ValueError, match="iceberg"):
        NewRestore.model_validate(body)
    assert ParquetPlace(kind="parquet", url="s3://a/b").kind == "parquet"
