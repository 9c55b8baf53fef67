"""Reservations of territory ids (docs/formats.md): an id has one, which is created before the first file of its chain.
Pure.

Two processes that choose the same id would both take its chain for their own, and some keys would be in none. So the
reservation, one conditional PUT, decides which of them has the id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tistream.errors import CorruptObject

VERSION, WITH_PARENTS = 1, 2
BYTES_MAX = 8_192  # of the object: 256 parents have 6 KB
_NONCE = re.compile(r"[0-9a-f]{1,64}")
_ID = re.compile(r"[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Reservation:
    """States which process may begin the chain of a territory.

    `division` is the nonce of the division that has chosen the id for a new territory, and that alone may begin the
    chain. It is empty if the id was named: then every process that serves this territory may. `parents` are the
    territories that the division replaces; empty if they are not known.
    """

    store_id: int
    division: str = ""
    parents: tuple[int, ...] = ()


def encode(reservation: Reservation) -> bytes:
    """The bytes of the object. They depend only on the reservation."""
    version, parents = (WITH_PARENTS if reservation.parents else VERSION), [str(one) for one in reservation.parents]
    said = {"version": version, "territory": str(reservation.store_id), "division": reservation.division}
    said |= {"parents": parents} if parents else {}
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
    if type(version) is not int or version not in (VERSION, WITH_PARENTS):
        raise _damaged(
            key, f"its version is {str(version)[:40]!r}; this program knows {VERSION} and {WITH_PARENTS}", store_id
        )
    territory, division = said.get("territory"), said.get("division")
    if territory != str(store_id):
        raise _damaged(key, f"it is of territory {str(territory)[:40]!r}", store_id)
    if not isinstance(division, str) or (division and not _NONCE.fullmatch(division)):
        raise _damaged(key, "its division is neither empty nor a hexadecimal nonce", store_id)
    return Reservation(store_id, division, _parents(key, said, store_id) if version == WITH_PARENTS else ())


def _parents(key: str, said: Mapping[str, Any], store_id: int) -> tuple[int, ...]:
    found = said.get("parents")
    if not isinstance(found, list) or not all(isinstance(one, str) and _ID.fullmatch(one) for one in found):
        raise _damaged(key, "its parents are no list of territory ids", store_id)
    return tuple(int(one) for one in found)


def refusal(found: Reservation, wanted: Reservation) -> str | None:
    """The reason why a process that wants `wanted` may not begin the chain, whose id has the reservation `found`. None
    if it may."""
    if found == wanted:
        return None
    if not found.division:
        return f"id {found.store_id} was named for a territory, so no division may choose it"
    of = f" of {', '.join(map(str, found.parents))}" if found.parents else ""
    return f"id {found.store_id} is reserved for a new territory of a division{of}, which alone may use it"


def _damaged(key: str, why: str, store_id: int) -> CorruptObject:
    return CorruptObject(key, f"the reservation of territory id {store_id} is damaged: {why}; use another id")
