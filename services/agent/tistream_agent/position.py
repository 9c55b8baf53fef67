"""Finds where the chain of a territory's change files continues: after its newest file, or at the tenant's snapshot. A
territory is the span of keys that one agent reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tistream.errors import CorruptObject, FatalError, NotFoundYet
from tistream.format import change_file
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream.storage.object_store import ObjectInfo, ObjectStore
from tistream_agent import claim_pause
from tistream_agent.core import chain

_PAGE = 1_000  # names in the answer of a LIST
_TAIL = 1_000  # files: ten minutes of a busy territory


SEALED = "sealed"  # in place of the nonce of the chain's last file, after `tistream disconnect`


class ChainSealed(FatalError):
    """Raised if `tistream disconnect` has ended the territory's chain for good: no agent may continue it."""

    code = "sealed"


@dataclass(frozen=True, slots=True)
class RecentClaims:
    """The recent claims of a territory, as the newest files of its chain show them. A claim is the first file of an
    agent that takes the chain over. `claims` is the number of claims. `newest` is the ts of the newest file, 0 if the
    chain has no file; `nonce` is that of the agent that wrote it."""

    claims: int = 0
    newest: int = 0
    nonce: str = ""


def newest_file(objects: ObjectStore, tenant: TenantKey, store_id: int, known: int = 0) -> int:
    """Find the newest file of a chain by LISTs. Returns its ts; 0 if the chain has no file.

    `known` is the ts of any of its files; 0 if none is known. Names have no gaps, so the end is found by probes at
    distances that double: some 15 LISTs for a day of files.
    """
    prefix = layout.change_file_prefix(tenant, store_id)

    def after(ts: int) -> Iterator[int]:
        """List the files with a ts above `ts`; yields their ts in order."""
        for info in objects.list_after(prefix, layout.change_file(tenant, store_id, ts)):
            name = layout.parse_change_file(info.key)
            if name is not None:
                yield name[2]

    low = known or next(after(0), 0)
    if not low:
        return 0
    step = _PAGE
    while (found := next(after(low + step - 1), 0)) != 0:
        low, step = found, 2 * step
    high = low + step  # no file is at or above it
    while high - low > _PAGE:
        middle = (low + high) // 2
        found = next(after(middle - 1), 0)
        low, high = (found, high) if found else (low, middle)
    return max(after(low), default=low)


def last_position(objects: ObjectStore, tenant: TenantKey, store_id: int, span: KeySpan) -> chain.Position | None:
    """Read where a chain continues: after its newest file. Returns None if the chain has no file.

    Raises CorruptObject if the newest file was not written by an agent or is damaged, and ChainSealed.
    """
    found, sealed = end_of_chain(objects, tenant, store_id, span)
    if sealed:
        raise ChainSealed(
            f"`tistream disconnect` sealed territory {store_id} of tenant {tenant}: `tistream connect` opens it again"
        )
    return found


def end_of_chain(
    objects: ObjectStore, tenant: TenantKey, store_id: int, span: KeySpan | None
) -> tuple[chain.Position | None, bool]:
    """Read where a chain continues: after its newest file. Returns the position (None if the chain has no file), and
    whether that file ends the chain for good. `span` is as in chain.read_position. Raises CorruptObject."""
    ts = newest_file(objects, tenant, store_id)
    if not ts:
        return None, False
    key = layout.change_file(tenant, store_id, ts)
    file = open_change_file(objects, key)
    said = change_file.footer_metadata(key, file.footer)
    position = chain.read_position(key, ts, said, read_watermarks(objects, file), span)
    return position, said.get(chain.NONCE) == SEALED


def recent_claims(objects: ObjectStore, tenant: TenantKey, store_id: int, now_ms: int) -> RecentClaims:
    """Count the claims of a territory within RECENT_MS, from the files at the end of its chain. Raises Unavailable."""
    newest = newest_file(objects, tenant, store_id)
    if not newest:
        return RecentClaims()
    after = layout.change_file(tenant, store_id, max(0, newest - _TAIL))
    recent = [
        info
        for info in objects.list_after(layout.change_file_prefix(tenant, store_id), after)
        if _is_recent(info, now_ms)
    ]
    try:
        found = claim_pause.count_claims([info.key for info in recent], lambda key: _nonce(objects, key))
        return RecentClaims(found, newest, _nonce(objects, layout.change_file(tenant, store_id, newest)))
    except (CorruptObject, NotFoundYet):
        return RecentClaims()  # the claim meets the same file, and says what is wrong


def _is_recent(info: ObjectInfo, now_ms: int) -> bool:
    return layout.parse_change_file(info.key) is not None and now_ms - info.modified_ms < claim_pause.RECENT_MS


def _nonce(objects: ObjectStore, key: str) -> str:
    return change_file.footer_metadata(key, open_change_file(objects, key).footer).get(chain.NONCE, "")


def snapshot_ts(objects: ObjectStore, tenant: TenantKey) -> int:
    """The ts of the tenant's schema_snap. Raises NotFoundYet if it does not exist, and CorruptObject."""
    key = layout.schema_snap(tenant)
    try:
        return parse_snapshot(key, objects.get(key)).snapshot_ts
    except ValueError as error:
        raise CorruptObject(key, str(error)) from error
