"""Finds where the chain of a territory's change files continues: after its newest file, or at the tenant's snapshot. A
territory is the span of keys that one agent reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class ChainSealed(FatalError):
    """Raised if `tistream disconnect` or `tistream agent divide` has ended the territory's chain: no agent may continue
    it. `children`: the territories among which its keys were divided; empty if they were not."""

    code = "sealed"

    def __init__(self, detail: str, children: tuple[chain.Child, ...] = ()) -> None:
        super().__init__(detail)
        self.children = children


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

    Raises CorruptObject if the newest file was not written by an agent or is damaged, and ChainSealed if it says that
    the territory was divided, or sealed by `tistream disconnect`.
    """
    end = end_of_chain(objects, tenant, store_id, span)
    if end.children:
        raise ChainSealed(divided_text(tenant, store_id, end.children), end.children)
    if end.sealed:
        raise ChainSealed(
            f"`tistream disconnect` sealed territory {store_id} of tenant {tenant}: `tistream connect` opens it again"
        )
    return end.position


def divided_text(tenant: TenantKey, store_id: int, children: Sequence[chain.Child]) -> str:
    """Say which territories have the keys of one that was divided, and how to finish the division."""
    heirs = ", ".join(str(one.store_id) for one in children)
    return (
        f"the keys of territory {store_id} of tenant {tenant} are in {heirs} now: if no agent has those, run "
        f"`tistream agent divide` again for {store_id}"
    )


def end_of_chain(objects: ObjectStore, tenant: TenantKey, store_id: int, span: KeySpan | None) -> chain.ChainEnd:
    """Read where a chain ends: its newest file. `span` is as in chain.read_position. Raises CorruptObject."""
    ts = newest_file(objects, tenant, store_id)
    if not ts:
        return chain.ChainEnd()
    key = layout.change_file(tenant, store_id, ts)
    file = open_change_file(objects, key)
    said = change_file.footer_metadata(key, file.footer)
    children = chain.read_children(key, said)
    # A last file that names children repeats the promises of all keys that the territory had.
    position = chain.read_position(key, ts, said, read_watermarks(objects, file), None if children else span)
    return chain.ChainEnd(position, said.get(chain.NONCE) == chain.SEALED, children)


def newest_nonce(objects: ObjectStore, tenant: TenantKey, store_id: int, known: int = 0) -> tuple[int, str]:
    """Find the newest file of a chain (`known` is as in newest_file). Returns its ts and its nonce, `chain.SEALED` for
    a last file; (0, empty) if the chain has no file. Raises CorruptObject, NotFoundYet, Unavailable."""
    ts = newest_file(objects, tenant, store_id, known)
    return ts, _nonce(objects, layout.change_file(tenant, store_id, ts)) if ts else ""


def recent_claims(objects: ObjectStore, tenant: TenantKey, store_id: int, now_ms: int) -> RecentClaims:
    """Count how often agents have taken over a territory within RECENT_MS before `now_ms` (Unix ms), from the last
    files of its chain. Returns an empty RecentClaims if the chain has no file, or if one of these files is missing or
    damaged. Raises Unavailable."""
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
    """The ts as of which the tenant's schema_snap (the object with its schema) was read. Raises NotFoundYet if the
    object does not exist, and CorruptObject if it cannot be parsed."""
    key = layout.schema_snap(tenant)
    try:
        return parse_snapshot(key, objects.get(key)).snapshot_ts
    except ValueError as error:
        raise CorruptObject(key, str(error)) from error
