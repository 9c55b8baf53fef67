"""Reads secrets from files that may be rewritten while the process runs, such as a mounted secret that is rotated."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from tistream.concurrency import new_lock

log = logging.getLogger(__name__)

T = TypeVar("T")


class SecretFile(Generic[T]):
    """A secret in a file. `parse` converts the file's text to the value. The file is read again when it has changed.
    Thread-safe.

    If the file is invalid at first, `__init__` raises ValueError (from `parse`) or OSError. If it becomes invalid
    later, that is logged, and the previous value stays.
    """

    def __init__(self, path: Path, parse: Callable[[str], T]) -> None:
        self._path, self._parse = path, parse
        self._lock = new_lock()
        self._mark = self._marked()
        try:
            self._value = parse(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @property
    def value(self) -> T:
        """The value that was read last."""
        return self._value

    def look(self) -> bool:
        """Read the file again if it has changed since the last call. Returns whether the value has changed."""
        with self._lock:
            try:
                mark = self._marked()
                if mark == self._mark:
                    return False
                self._mark = mark
                value = self._parse(self._path.read_text())
            except (OSError, ValueError) as error:
                log.error("a secret was not read anew", extra={"file": str(self._path), "error": str(error)})
                return False
            changed = value != self._value
            self._value = value
            return changed

    def _marked(self) -> tuple[int, int, int]:
        # Kubernetes swaps a link to another folder: the path then leads to another file, perhaps with the same time and
        # size.
        found = self._path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size


def bearer_text(text: str) -> str:
    """Parse the text of a token file, and return the token. Raises ValueError if the text is not one line of at least
    _TOKEN_MIN printable ASCII characters without spaces."""
    token = text.strip()
    if not token.isascii() or not token.isprintable() or " " in token or len(token) < _TOKEN_MIN:
        raise ValueError(f"it holds no token: one line of at least {_TOKEN_MIN} letters, digits and signs")
    return token


_TOKEN_MIN = 20
