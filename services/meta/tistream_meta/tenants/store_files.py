"""Lists the files of a retired store that must be deleted."""

from __future__ import annotations

from collections.abc import Iterator

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore


def files_end(objects: ObjectStore, key: TenantKey, store_id: int, taken_ts: int, *, discard: bool) -> int:
    """The ts of the last file to delete when a store is retired: `taken_ts`, up to which all tasks have applied its
    files, or with `discard` that of its last file. Raises InvalidRequest if there are files after `taken_ts` and
    `discard` is false, and Unavailable."""
    after = layout.change_file(key, store_id, taken_ts)
    names = (
        layout.parse_change_file(info.key)
        for info in objects.list_after(layout.change_file_prefix(key, store_id), after)
    )
    untaken = [name[2] for name in names if name is not None]
    if untaken and not discard:
        raise InvalidRequest(
            f"store {store_id} cannot be retired: {len(untaken)} of its files were never taken, the first is "
            f"{untaken[0]} (`tistream tenant status` says what they wait for); to delete them with it say --discard",
            {"parameter": "discard"},
        )
    return untaken[-1] if untaken else taken_ts


def to_delete(objects: ObjectStore, key: TenantKey, store_id: int, through_ts: int) -> Iterator[str]:
    """The object keys below a store's prefix that must be deleted: its files up to and including `through_ts`, and
    objects that are not change files. Later files are kept, because they show that the store has come back."""
    for info in objects.list_after(layout.store_prefix(key, store_id)):
        name = layout.parse_change_file(info.key)
        if name is None or name[2] <= through_ts:
            yield info.key
