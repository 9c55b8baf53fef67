"""The directory of `tistream up`: one supervisor at a time, everything durable below it."""

from __future__ import annotations

import base64
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from tistream.cli.errors import CliError

# They would end the path inside a URL (sqlite:///…, file://…).
_AWKWARD = "?#%"


@dataclass(frozen=True, slots=True)
class DataDir:
    """Paths below the data directory. `lock_fd` holds the lock for as long as the process lives."""

    root: Path
    lock_fd: int

    @property
    def objects_url(self) -> str:
        return self.root.joinpath("objects").as_uri()

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.root / 'meta.db'}"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def first_token(self) -> Path:
        """With `--auth`: the token that may do everything."""
        return self.root / "secrets" / "first.token"

    @property
    def service_key(self) -> Path:
        """The key of the tokens between the services."""
        return self.root / "secrets" / "service.key"

    @property
    def scratch(self) -> Path:
        """Temporary files of Spark; emptied at each start."""
        return self.root / "scratch"


def open_data_dir(path: Path) -> DataDir:
    """Make the directory if it is not there and lock it. Raises CliError: not writable, or in use, and by whom."""
    root = path.absolute()
    if any(letter in str(root) for letter in _AWKWARD):
        raise CliError(f"data directory {root}: the path must not hold any of {' '.join(_AWKWARD)}")
    try:
        for folder in (root, root / "objects", root / "logs", root / "scratch"):
            folder.mkdir(parents=True, exist_ok=True)
        (root / "secrets").mkdir(mode=0o700, exist_ok=True)
        fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CliError(f"cannot use data directory {root}: {error.strerror} ({error.filename})") from error
    _lock(root, fd)
    return DataDir(root, fd)


def make_service_key(directory: DataDir, key: bytes) -> Path:
    """The file with the key of the services, made of `key` unless it is there; for this user alone. Raises CliError."""
    path = directory.service_key
    try:
        if not path.exists():
            fresh = path.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(base64.b64encode(key) + b"\n")
            fresh.rename(path)
    except OSError as error:
        raise CliError(f"cannot make {path}: {error.strerror}") from error
    return path


def _lock(root: Path, fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise CliError(f"data directory {root} is in use by another tistream up (pid {holder or 'unknown'})") from error
    except OSError as error:
        os.close(fd)
        raise CliError(f"cannot lock data directory {root}: {error.strerror}") from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
