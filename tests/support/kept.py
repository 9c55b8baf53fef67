"""Servers and tools that tests want and a machine may lack: built or fetched once and kept, or run by Docker."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GO_FOLDERS = "/usr/local/go/bin:/usr/lib/go/bin"  # where Go is, if not on PATH
BUILDING_SECONDS = 1800


class NotHad(Exception):
    """The reason why a program is missing and cannot be installed here."""


def folder() -> Path:
    """The directory in which built programs are kept."""
    return Path.home() / ".cache" / "tistream-tests" / "bin"


@contextmanager
def alone(name: str) -> Iterator[None]:
    """A lock by name: one of several test processes builds a program, and the others wait."""
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def built(package: str, name: str) -> str:
    """The path of a program that `go install PACKAGE` builds, kept as `name`. Raises NotHad."""
    target = folder() / name
    if target.exists():
        return str(target)
    go = shutil.which("go") or shutil.which("go", path=GO_FOLDERS)
    if go is None:
        raise NotHad("no go to build it with")
    with alone(name):
        if not target.exists():
            _build(go, package, target)
    return str(target)


def packaged(package: str, *programs: str) -> str | None:
    """One of these programs: on PATH, or installed by apt as `package` where the user is root; None without root.
    Raises NotHad."""
    if (found := _on_path(programs)) is None and os.geteuid() == 0:
        with alone("apt"):  # apt serves one at a time
            if (found := _on_path(programs)) is None:
                _install(package)
                found = _on_path(programs)
    return found


def _on_path(programs: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, programs)), None)


def _install(package: str) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("apt-get", "update"), ("apt-get", "install", "-y", "--no-install-recommends", package)):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, env=quiet)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotHad(f"{' '.join(command)}: {error} {getattr(error, 'stderr', '')}") from error


def _build(go: str, package: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        environ = {**os.environ, "GOBIN": scratch, "CGO_ENABLED": "0"}
        # Inside a module of its own: outside of any, Go also asks for a list of versions, which not every proxy has.
        Path(scratch, "go.mod").write_text("module scratch\n")
        for words in (("get", package), ("install", package.partition("@")[0])):
            command = [go, *words]
            try:
                subprocess.run(
                    command,
                    check=True,
                    capture_output=True,
                    text=True,
                    env=environ,
                    cwd=scratch,
                    timeout=BUILDING_SECONDS,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise NotHad(f"{' '.join(command)}: {error} {getattr(error, 'stderr', '') or ''}"[:2_000]) from error
        [program] = [path for path in Path(scratch).iterdir() if path.name not in ("go.mod", "go.sum")]
        os.replace(program, target)


def docker_answers() -> bool:
    """Whether a Docker engine is available."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    asked = [docker, "version", "--format", "{{.Server.Version}}"]
    try:
        return subprocess.run(asked, capture_output=True, timeout=120, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
