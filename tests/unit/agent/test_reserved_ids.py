"""Reservations of territory ids: one process has an id, whatever becomes of its writes; damaged ones are refused."""

from __future__ import annotations

import pytest

from support.faulty_store import Fault, FaultyObjectStore
from tistream.errors import CommitStateUnknown, CorruptObject
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.bulk.territories import TERRITORIES_MAX
from tistream_agent.reservation import BYTES_MAX, Reservation, decode, encode, refusal
from tistream_agent.reserved_ids import ReservedIds

ACME = TenantKey("7", "acme")
KEY = layout.reserved_territory(ACME, 5)
OURS, THEIRS, NAMED = Reservation(5, "c0ffee", (1, 3)), Reservation(5, "dead"), Reservation(5)


def test_an_id_is_of_one_division_or_of_all_that_name_it() -> None:
    ids = ReservedIds(MemoryObjectStore(), ACME)
    assert ids.reserve(OURS) is None
    assert ids.reserve(OURS) is None, "its own process may ask again"
    for other in (THEIRS, NAMED):
        assert "id 5 is reserved for a new territory of a division of 1, 3" in (ids.reserve(other) or "")
    assert ids.reserve(Reservation(6)) is None
    assert ids.reserve(Reservation(6)) is None, "an agent that starts again names it again"
    assert "id 6 was named" in (ids.reserve(Reservation(6, "c0ffee")) or "")


def test_a_chain_that_was_sealed_by_name_is_named_again() -> None:
    ids = ReservedIds(MemoryObjectStore(), ACME)
    ids.reserve(OURS)
    ids.reserve(Reservation(6, "dead"))
    ids.reserve(Reservation(7))
    assert list(ids.by_divisions()) == [OURS, Reservation(6, "dead")]
    ids.name(5)
    assert list(ids.by_divisions()) == [Reservation(6, "dead")]
    assert ids.reserve(NAMED) is None


# Attack: the answer to a reservation is lost, and another process reserves the id before or after it
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED, Fault.DELAYED])
def test_a_reservation_without_an_answer_is_settled(fault: Fault) -> None:
    objects = MemoryObjectStore()
    store = FaultyObjectStore(objects, [fault])
    assert ReservedIds(store, ACME).reserve(OURS) is None
    store.deliver()
    assert ReservedIds(objects, ACME).reserve(THEIRS) is not None
    assert objects.get(KEY) == encode(OURS)


def test_a_reservation_that_stays_without_an_answer_is_not_taken_for_one() -> None:
    store = FaultyObjectStore(MemoryObjectStore(), [Fault.DELAYED, Fault.LOST])
    with pytest.raises(CommitStateUnknown):
        ReservedIds(store, ACME).reserve(OURS)
    assert ReservedIds(store, ACME).reserve(THEIRS) is None
    store.deliver()
    assert ReservedIds(store, ACME).reserve(OURS) is not None


def test_what_is_encoded_is_read_again() -> None:
    for one in (OURS, THEIRS, NAMED):
        assert decode(KEY, encode(one), 5) == one
        assert refusal(one, one) is None
    assert encode(OURS) == b'{"version":2,"territory":"5","division":"c0ffee","parents":["1","3"]}'
    assert encode(THEIRS) == b'{"version":1,"territory":"5","division":"dead"}'
    largest = Reservation((1 << 63) - 1, "f" * 64, tuple(range((1 << 63) - TERRITORIES_MAX, 1 << 63)))
    assert len(encode(largest)) <= BYTES_MAX


# Attack: the object of a reservation is damaged, of another id, of a later version, or very large
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[" * BYTES_MAX, "it is not JSON"),
        (b"[]", "its version is 'None'"),
        (b'{"version":3,"territory":"5","division":""}', "its version is '3'; this program knows 1 and 2"),
        (b'{"version":2,"territory":"5","division":"dead"}', "its parents are no list of territory ids"),
        (b'{"version":2,"territory":"5","division":"dead","parents":[1]}', "its parents are no list"),
        (b'{"version":2,"territory":"5","division":"dead","parents":["0"]}', "its parents are no list"),
        (b'{"version":true,"territory":"5","division":""}', "its version is 'True'"),
        (b'{"version":1,"territory":"6","division":""}', "it is of territory '6'"),
        (b'{"version":1,"territory":5,"division":""}', "it is of territory '5'"),
        (b'{"version":1,"territory":"5"}', "its division is neither empty nor a hexadecimal nonce"),
        (b'{"version":1,"territory":"5","division":"x"}', "its division is neither"),
        (encode(OURS) + b" " * BYTES_MAX, f"it has more than {BYTES_MAX} bytes"),
    ],
)
def test_a_damaged_reservation_is_named_and_reserves_the_id_all_the_same(data: bytes, why: str) -> None:
    objects = MemoryObjectStore()
    objects.put(KEY, data)
    objects.put(layout.reserved_prefix(ACME) + "notes", b"of a person")
    ids = ReservedIds(objects, ACME)
    for wanted in (OURS, NAMED):
        with pytest.raises(CorruptObject, match="the reservation of territory id 5 is damaged") as caught:
            ids.reserve(wanted)
        assert why in str(caught.value)
        assert str(caught.value).startswith(KEY)
        assert str(caught.value).endswith("use another id")
    assert list(ids.by_divisions()) == []
