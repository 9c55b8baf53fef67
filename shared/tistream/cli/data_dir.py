"""The directory of `tistream up`: one supervisor at a time, all that lasts below it, for one user alone."""

from __future__ import annotations

import base64
import fcntl
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from tistream.cli.errors import CliError

# They would end the path inside a URL (sqlite:///…, file://…).
_AWKWARD = "?#%"
OWN_UMASK = 0o077  # of whatever writes below it: rows, the meta database, logs
_OWN_MODE = 0o700
_FOLDERS = ("objects", "logs", "scratch", "secrets")
_TEMPORARY = "objects.tmp"  # the object store's


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
    """Make the directory if it is not there, and lock it. What is in it is everything that its tenants have: one that
    other users can enter is closed to them, and stderr says so.

    Raises CliError: not writable; in use, and by whom; another user's; or open to others, and not ours to close.
    """
    root = path.absolute()
    if any(letter in str(root) for letter in _AWKWARD):
        raise CliError(f"data directory {root}: the path must not hold any of {' '.join(_AWKWARD)}")
    try:
        root.mkdir(mode=_OWN_MODE, parents=True, exist_ok=True)
        _close_to_others(root)
        for folder in _FOLDERS:
            (root / folder).mkdir(mode=_OWN_MODE, exist_ok=True)
        fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CliError(f"cannot use data directory {root}: {error.strerror} ({error.filename})") from error
    _lock(root, fd)
    return DataDir(root, fd)


def _close_to_others(root: Path) -> None:
    found = root.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        raise CliError(
            f"data directory {root} belongs to user {found.st_uid}, who can read all that is written there; "
            f"this is user {os.geteuid()}: name another directory, or change its owner (chown)"
        )
    if not mode & OWN_UMASK:
        return
    # A directory of something else (/, a home, /tmp) would be spoilt for its other users.
    foreign = [] if (root / "lock").exists() else sorted(set(_folders_in(root)) - {*_FOLDERS, _TEMPORARY})
    if foreign or mode & stat.S_ISVTX:
        why = f"holds {', '.join(foreign[:3])}" if foreign else "is one that users share"
        raise CliError(
            f"data directory {root} is open to other users of this machine (mode {mode:04o}), and {why}: name another "
            f"directory, or close it (chmod 700 {root})"
        )
    root.chmod(_OWN_MODE)
    sys.stderr.write(
        f"data directory {root} was open to other users of this machine (mode {mode:04o}); "
        f"now it is for this user alone (mode {_OWN_MODE:04o})\n"
    )


def _folders_in(root: Path) -> list[str]:
    with os.scandir(root) as entries:
        return [entry.name for entry in entries if entry.is_dir()]


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
