"""The data directory of `tistream up`. It has all persistent data, one supervisor locks it, and only its user can
access it."""

from __future__ import annotations

import base64
import fcntl
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from tistream.secrets.sealing import private_keys
from tistream_client.cli.errors import CliError

# These characters would end the path inside a URL (sqlite:///…, file://…).
_AWKWARD = "?#%"
OWN_UMASK = 0o077  # for all processes that write rows, the meta database or logs
_OWN_MODE = 0o700
_FOLDERS = ("objects", "logs", "scratch", "secrets")
_TEMPORARY = "objects.tmp"  # temporary files of the object store


@dataclass(frozen=True, slots=True)
class DataDir:
    """The paths of files below the data directory. `lock_fd` is the descriptor that holds the lock until the process
    ends."""

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
        """The file of the first token, which grants everything. It is used with `--auth`."""
        return self.root / "secrets" / "first.token"

    @property
    def service_key(self) -> Path:
        """The file of the key that signs tokens between services."""
        return self.root / "secrets" / "service.key"

    @property
    def secrets_key(self) -> Path:
        """The file of the private key that decrypts secrets of tenants. The public key is in a file beside it."""
        return self.root / "secrets" / "secrets.key"

    @property
    def secrets_public(self) -> Path:
        """The file of the public key that encrypts secrets of tenants."""
        return self.secrets_key.with_suffix(".pub")

    @property
    def scratch(self) -> Path:
        """The directory of Spark's temporary files, which is emptied at each start."""
        return self.root / "scratch"


def open_data_dir(path: Path) -> DataDir:
    """Create the directory if it does not exist, and lock it. Because it has all data of the tenants, other users'
    access is removed, and that is reported on stderr.

    Raises CliError if the directory is not writable, is in use (with the pid), belongs to another user, or is
    accessible to other users and is not a data directory.
    """
    root = path.absolute()
    if any(letter in str(root) for letter in _AWKWARD):
        raise CliError(f"data directory {root}: the path must not contain any of {' '.join(_AWKWARD)}: use another one")
    try:
        root.mkdir(mode=_OWN_MODE, parents=True, exist_ok=True)
        _close_to_others(root)
        for folder in _FOLDERS:
            (root / folder).mkdir(mode=_OWN_MODE, exist_ok=True)
        fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CliError(f"--data-dir {root} cannot be used: {error.strerror} ({error.filename})") from error
    _lock(root, fd)
    return DataDir(root, fd)


def _close_to_others(root: Path) -> None:
    found = root.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        raise CliError(
            f"data directory {root} belongs to user {found.st_uid}, who could read all data in it; "
            f"this is user {os.geteuid()}: use another directory, or change its owner (chown)"
        )
    if not mode & OWN_UMASK:
        return
    # Changing the mode of another kind of directory (/, a home, /tmp) would lock out its other users.
    foreign = [] if (root / "lock").exists() else sorted(set(_folders_in(root)) - {*_FOLDERS, _TEMPORARY})
    if foreign or mode & stat.S_ISVTX:
        why = f"contains {', '.join(foreign[:3])}" if foreign else "is one that users share"
        raise CliError(
            f"data directory {root} is open to other users of this machine (mode {mode:04o}), and {why}: use another "
            f"directory, or remove their access (chmod 700 {root})"
        )
    root.chmod(_OWN_MODE)
    sys.stderr.write(
        f"data directory {root} was open to other users of this machine (mode {mode:04o}); "
        f"now only this user can access it (mode {_OWN_MODE:04o})\n"
    )


def _folders_in(root: Path) -> list[str]:
    with os.scandir(root) as entries:
        return [entry.name for entry in entries if entry.is_dir()]


def make_key(path: Path, key: bytes) -> Path:
    """Return the path of a key file that only this user can read. If the file does not exist, create it with `key`, in
    base64. Raises CliError."""
    try:
        if not path.exists():
            fresh = path.with_name(f"{path.name}.new")
            fresh.unlink(missing_ok=True)
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(base64.b64encode(key) + b"\n")
            fresh.rename(path)
    except OSError as error:
        raise CliError(f"cannot create {path}: {error.strerror}") from error
    return path


def make_secrets_keys(directory: DataDir, key: bytes) -> None:
    """Create the pair of keys for tenants' secrets from 32 random bytes, unless it exists. Raises CliError."""
    (private,) = private_keys(make_key(directory.secrets_key, key).read_text())
    make_key(directory.secrets_public, bytes(private.public_key))


def _lock(root: Path, fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise CliError(
            f"data directory {root} is in use by another tistream up (pid {holder or 'unknown'}): end that one, or "
            "use another --data-dir"
        ) from error
    except OSError as error:
        os.close(fd)
        raise CliError(f"cannot lock data directory {root}: {error.strerror}") from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
