"""Walks a directory tree in the order of object keys. It enters only directories that can hold requested keys."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from tistream.storage.backends.keys import is_key


def walk(
    root: str, prefix: str, after: str, *, by_directory: bool, skip: str
) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield (key, stat) of every object whose key starts with `prefix` and is > `after`, in key order.

    With `by_directory`, the walk does not enter a directory below the prefix's last "/", but yields it as (name ending
    in "/", None), if it contains an object. `skip` is the name of a directory in the root that holds no objects. Links
    that lead out of the root, names that are not valid keys, and files that disappear during the walk are left out.
    """
    base = prefix[: prefix.rfind("/") + 1]
    if base and not is_key(base[:-1]):
        return
    if not _inside(root, os.path.join(root, base)):
        return
    for key, found in _below(root, base, prefix, after, skip, enter=not by_directory):
        if found is not None or key > after:
            yield key, found


def _below(
    root: str, directory: str, prefix: str, after: str, skip: str, *, enter: bool
) -> Iterator[tuple[str, os.stat_result | None]]:
    for key, entry in _entries(root, directory, skip):
        if key.endswith("/"):
            if not (key.startswith(prefix) or prefix.startswith(key)):
                continue
            if key <= after and not after.startswith(key):
                continue  # everything in it is before `after`
            if enter:
                yield from _below(root, key, prefix, after, skip, enter=True)
            elif next(_below(root, key, prefix, "", skip, enter=True), None) is not None:
                yield key, None
        elif key > after and key.startswith(prefix):
            try:
                found = entry.stat()
            except OSError:
                continue  # the directory was removed since its name was read
            if stat.S_ISREG(found.st_mode):
                yield key, found


def _entries(root: str, directory: str, skip: str) -> list[tuple[str, os.DirEntry[str]]]:
    """List one directory. Returns its names as keys, in key order; those of directories end in "/"."""
    try:
        with os.scandir(os.path.join(root, directory)) as scan:
            entries = list(scan)
    except (FileNotFoundError, NotADirectoryError):
        return []
    out = []
    for entry in entries:
        key = directory + entry.name
        if not is_key(key) or key == skip:
            continue
        if entry.is_symlink() and (entry.is_dir() or not _inside(root, entry.path)):
            continue  # a linked directory might lead to a cycle
        out.append((key + "/" if entry.is_dir() else key, entry))
    return sorted(out, key=lambda item: item[0])


def _inside(root: str, path: str) -> bool:
    return os.path.commonpath((os.path.realpath(path), root)) == root
