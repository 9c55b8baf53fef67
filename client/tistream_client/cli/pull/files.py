"""Writes files in one step, and names the directories of tables as the platform does."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import quote

_NAME_BYTES_MAX = 100  # for each of the two names, because file systems allow 255 bytes for both


def put_whole(path: Path, body: bytes) -> None:
    """Write a file with this content: after a crash it has the old content or the new one. Raises OSError."""
    draft = path.with_name(f".{path.name}.part")
    put(draft, body)
    draft.replace(path)
    sync(path.parent)


def put(path: Path, body: bytes) -> None:
    """Write a file with this content. It survives a crash once `put` has returned and `sync` was called for the file's
    directory. Raises OSError."""
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def sync(directory: Path) -> None:
    """Make the entries of a directory durable, so that new and renamed files survive a crash. Raises OSError."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def directory_of(database: str, table: str) -> str:
    """The directory name of a table's rows. In both names, all characters but ASCII letters, digits, `_` and `-` are
    percent-encoded. A name longer than _NAME_BYTES_MAX is cut, and ends with `~` and a digest of the name."""
    return f"{_encoded(database)}.{_encoded(table)}"


def _encoded(name: str) -> str:
    text = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(text) <= _NAME_BYTES_MAX:
        return text
    digest = hashlib.blake2b(name.encode(), digest_size=12).hexdigest()
    return f"{text[: _NAME_BYTES_MAX - len(digest) - 1]}~{digest}"
