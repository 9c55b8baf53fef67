"""Reads the bucket of a log backup: checkpoints, new metadata objects, the safe point. It only does I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tistream.errors import CorruptObject, NotFoundYet
from tistream.logbackup import metadata, prefix
from tistream.logbackup.metadata import Metadata
from tistream.schema.records import RestoredTables
from tistream.storage.object_store import ObjectInfo, ObjectStore


@dataclass(slots=True)
class Bucket:
    """The bucket and prefix to which `br log start` writes. Not thread-safe."""

    log: ObjectStore
    _checkpoints: dict[int, tuple[str, int]] = field(default_factory=dict)  # store -> version, ts

    def checkpoints(self) -> dict[int, int]:
        """The checkpoint that each store has written. A file is read again only if LIST shows another version of it.

        Raises:
            Unavailable: no answer came.
            CorruptObject: a file holds no checkpoint.
        """
        for info in self.log.list_after(prefix.CHECKPOINTS):
            store_id = prefix.store_of_checkpoint(info.key)
            if store_id is None or self._checkpoints.get(store_id, ("", 0))[0] == info.version:
                continue
            ts = prefix.parse_checkpoint(info.key, self.log.get(info.key))
            self._checkpoints[store_id] = info.version, ts
        return {store_id: ts for store_id, (_, ts) in self._checkpoints.items()}

    def metas(self, after: str) -> Iterator[tuple[str, ObjectInfo]]:
        """List the metadata objects whose name sorts after `after`, by name. Raises Unavailable."""
        for info in self.log.list_after(prefix.METAS, f"{prefix.METAS}{after}" if after else ""):
            name = info.key.removeprefix(prefix.METAS)
            if name.endswith(".meta") and "/" not in name:
                yield name, info

    def metadata(self, name: str) -> Metadata:
        """Read one metadata object. Raises NotFoundYet, Unavailable, CorruptObject, SourceRefused."""
        key = prefix.METAS + name
        return metadata.parse(key, self.log.get(key))

    def backup(self) -> prefix.LogBackup:
        """Read and parse `backupmeta`. Raises Unavailable, CorruptObject, SourceRefused."""
        try:
            return prefix.parse_backupmeta(self.log.get(prefix.BACKUPMETA))
        except NotFoundYet:
            raise CorruptObject(
                prefix.BACKUPMETA,
                "is missing: the URL is not the prefix of a log backup; give the storage of `br log start`",
            ) from None

    def safe_point(self) -> int:
        """The ts below which `br log truncate` may have deleted data; 0 if it never ran. Raises Unavailable."""
        try:
            return prefix.parse_safe_point(self.log.get(prefix.SAFE_POINT))
        except NotFoundYet:
            return 0

    def restores(self) -> list[str]:
        """List the names of the objects in which BR lists the tables of its restores. Raises Unavailable."""
        return [info.key.removeprefix(prefix.RESTORES) for info in self.log.list_after(prefix.RESTORES)]

    def restored(self, name: str) -> RestoredTables:
        """Read the object of a restore. Raises NotFoundYet, Unavailable, CorruptObject."""
        return prefix.parse_restored(name, self.log.get(prefix.RESTORES + name))

    def has_migrations(self) -> bool:
        """Whether the prefix has migrations, which BR's maintenance writes (`br operator compact`, `br log
        truncate`)."""
        return next(iter(self.log.list_after(prefix.MIGRATIONS)), None) is not None
