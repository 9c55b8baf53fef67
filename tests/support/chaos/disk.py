"""A disk of its own that can be filled up and made read-only (root only: chmod does not stop root)."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PAGE = 4096
_FILLS = 50


class CannotMount(Exception):
    """The reason why no disk can be mounted on this machine."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted tmpfs; its memory is taken only as it fills."""

    path: Path
    size: int

    def fill(self) -> None:
        """Shrink the disk to the bytes in use, so that no byte more can be written. It is tried again if writers have
        added bytes meanwhile."""
        for left in reversed(range(_FILLS)):
            try:
                _mount("-o", f"remount,size={max(_PAGE, self._used())}", str(self.path))
            except CannotMount:
                if left:
                    continue
                raise
            return

    def make_room(self) -> None:
        """Give the disk its original size again."""
        _mount("-o", f"remount,size={self.size}", str(self.path))

    def _used(self) -> int:
        stat = os.statvfs(self.path)
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a folder read-only (EROFS) during the `with` block, by a read-only mount onto itself. Raises CannotMount."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


@contextlib.contextmanager
def mounted(path: Path, size: int) -> Iterator[Disk]:
    """A disk at `path`, unmounted at the end. Raises CannotMount, with the reason."""
    path.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size},mode=0755", "tistream-chaos", str(path))
    try:
        yield Disk(path, size)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)


def _mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotMount(str(error)) from error
    if done.returncode:
        raise CannotMount(done.stderr.strip() or f"mount ended with status {done.returncode}")
