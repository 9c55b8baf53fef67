"""Finds where the chain of a territory continues: after its newest file, or at the tenant's snapshot."""

from __future__ import annotations

from tistream.errors import CorruptObject
from tistream.format import change_file
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream.storage.object_store import ObjectStore
from tistream_agent.core import chain


def last_position(objects: ObjectStore, tenant: TenantKey, store_id: int, span: KeySpan) -> chain.Position | None:
    """The position after the newest file of a chain; None if the chain has no file.

    Raises CorruptObject: no agent wrote the newest file, or it is damaged.
    """
    newest: tuple[int, str] | None = None
    for info in objects.list_after(layout.change_file_prefix(tenant, store_id)):
        name = layout.parse_change_file(info.key)
        if name is not None:
            newest = name[2], info.key
    if newest is None:
        return None
    ts, key = newest
    file = open_change_file(objects, key)
    said = change_file.footer_metadata(key, file.footer)
    return chain.read_position(key, ts, said, read_watermarks(objects, file), span)


def snapshot_ts(objects: ObjectStore, tenant: TenantKey) -> int:
    """The ts of the tenant's schema_snap. Raises NotFoundYet if it does not exist, and CorruptObject."""
    key = layout.schema_snap(tenant)
    try:
        return parse_snapshot(key, objects.get(key)).snapshot_ts
    except ValueError as error:
        raise CorruptObject(key, str(error)) from error
