"""A folder in an object store that belongs to one restore: `restore.json` in it names the restore.

Names of files contain the restore's id. So a process that has lost its claim deletes only files of other restores, and
the files that it writes have the same names and equal rows as those of the next process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import orjson

from tistream.errors import CommitConflict, CommitStateUnknown, NotFoundYet, Unavailable
from tistream.storage.object_store import ObjectStore
from tistream.targets.restored_table import TableExists, TargetRefused

CLAIM = "restore.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """A folder that one restore writes into. `prefix` is "" or ends in "/". `shown`: the folder's name in errors.
    `files`: a pattern that matches the files of any restore; its group `id` is the restore's id."""

    objects: ObjectStore
    prefix: str
    shown: str
    restore_id: str
    files: re.Pattern[str]

    def taken(self) -> bool:
        """Whether the folder has objects that this restore did not create. Raises TargetRefused if its object
        `restore.json` cannot be understood, Unavailable."""
        owner = self._owner()
        return owner[0] != self.restore_id if owner is not None else self._any()

    def claim(self, *, replace: bool) -> None:
        """Record that the folder belongs to this restore, and delete the files of other restores in it. If the folder
        has objects that this restore did not create, raises TableExists without `replace`; with `replace`, raises
        TargetRefused if they are of no restore. Raises Unavailable."""
        owner = self._owner()
        if owner is None:
            if self._any():
                if not replace:
                    raise TableExists(self.shown)
                raise TargetRefused(f"{self.shown} has files but no {CLAIM} of a restore: name an empty place")
            self._put_new(CLAIM, self._body())
        elif owner[0] != self.restore_id:
            if not replace:
                raise TableExists(self.shown)
            try:
                self.objects.put_if(self.prefix + CLAIM, self._body(), owner[1])
            except (CommitConflict, CommitStateUnknown) as error:
                raise Unavailable(f"{self.shown}: another process claims it") from error
        for name in self.names():
            matched = self.files.fullmatch(name)
            if matched is not None and matched["id"] != self.restore_id:
                self.objects.delete(self.prefix + name)

    def names(self) -> list[str]:
        """The names of the objects in the folder, in order."""
        return [one.key.removeprefix(self.prefix) for one in self.objects.list_after(self.prefix)]

    def put(self, name: str, body: bytes) -> None:
        """Write a file, unless it exists. Raises Unavailable if no answer came."""
        self._put_new(name, body)

    def get(self, name: str) -> bytes:
        """Read a file. Raises NotFoundYet, Unavailable."""
        return self.objects.get(self.prefix + name)

    def _put_new(self, name: str, body: bytes) -> None:
        try:
            self.objects.put_new(self.prefix + name, body)
        except CommitConflict:
            if name == CLAIM and self.objects.get(self.prefix + name) != body:
                raise TableExists(self.shown) from None
        except CommitStateUnknown as error:
            raise Unavailable(f"{self.shown}: the store did not answer a write of {name}") from error

    def _owner(self) -> tuple[str, str] | None:
        """Read which restore the folder belongs to. Returns its id, and the version of the object that states it; None
        if no object states it. Raises TargetRefused if the object cannot be understood."""
        try:
            version = self.objects.head(self.prefix + CLAIM).version
            found = orjson.loads(self.objects.get(self.prefix + CLAIM))
            return str(found["restore_id"]), version
        except NotFoundYet:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise TargetRefused(f"{self.shown}/{CLAIM} was not written by a restore: name an empty place") from error

    def _any(self) -> bool:
        return next(iter(self.objects.list_after(self.prefix)), None) is not None

    def _body(self) -> bytes:
        return orjson.dumps({"version": _VERSION, "restore_id": self.restore_id})
