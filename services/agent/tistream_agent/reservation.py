"""Reservations of territory ids (docs/formats.md): an id has one, which is created before the first file of its chain.
Pure.

Two processes that choose the same id would both take its chain for their own, and some keys would be in none. So the
reservation, one conditional PUT, decides which of them has the id.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tistream.errors import CorruptObject

VERSION = 1
BYTES_MAX = 4_096  # of the object
_NONCE = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True)
class Reservation:
    """States which process may begin the chain of a territory.

    `division` is the nonce of the division that has chosen the id for a new territory, and that alone may begin the
    chain. It is empty if the id was named: then every process that serves this territory may.
    """

    store_id: int
    division: str = ""


def encode(reservation: Reservation) -> bytes:
    """The bytes of the object. They depend only on the reservation."""
    said = {"version": VERSION, "territory": str(reservation.store_id), "division": reservation.division}
    return json.dumps(said, separators=(",", ":")).encode()


def decode(key: str, data: bytes, store_id: int) -> Reservation:
    """Parse the object `key`, which is that of territory `store_id`. `data`: its bytes, or the first ones if there are
    more than BYTES_MAX. Raises CorruptObject."""
    if len(data) > BYTES_MAX:
        raise _damaged(key, f"it has more than {BYTES_MAX} bytes", store_id)
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(key, f"it is not JSON: {error}", store_id) from error
    version = said.get("version") if isinstance(said, dict) else None
    if type(version) is not int or version != VERSION:
        raise _damaged(key, f"its version is {str(version)[:40]!r}; this program knows {VERSION}", store_id)
    territory, division = said.get("territory"), said.get("division")
    if territory != str(store_id):
        raise _damaged(key, f"it is of territory {str(territory)[:40]!r}", store_id)
    if not isinstance(division, str) or (division and not _NONCE.fullmatch(division)):
        raise _damaged(key, "its division is neither empty nor a hexadecimal nonce", store_id)
    return Reservation(store_id, division)


def refusal(found: Reservation, wanted: Reservation) -> str | None:
    """The reason why a process that wants `wanted` may not begin the chain, whose id has the reservation `found`. None
    if it may."""
    if found == wanted:
        return None
    if not found.division:
        return f"id {found.store_id} was named for a territory, so no division may choose it"
    return (
        f"id {found.store_id} is reserved for a new territory of a division, which `tistream agent divide` finishes if "
        "it is run again for the old territories"
    )


def _damaged(key: str, why: str, store_id: int) -> CorruptObject:
    return CorruptObject(key, f"the reservation of territory id {store_id} is damaged: {why}; use another id")
