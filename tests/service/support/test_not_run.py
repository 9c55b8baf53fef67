"""A real server that cannot be had is told at the end of a run, and with CI set it fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import kept, mariadb
from support.effort import cases
from support.minio import command

TESTS = Path(__file__).parents[2]
SUITE = """
import pytest
from support.not_run import not_run

@pytest.fixture
def server():
    not_run(ValueError("no server,\\nand none to be had"))

def test_one(server): pass
def test_two(server): pass
def test_three(): pass
"""


@pytest.mark.parametrize(
    ("ci", "workers", "status", "outcome"),
    cases(
        [("", [], 0, "1 passed, 2 skipped"), ("true", ["-n", "1"], 1, "1 passed, 2 errors")],
        [
            ("false", ["-n", "2"], 0, "1 passed, 2 skipped"),
            ("true", [], 1, "1 passed, 2 errors"),
            ("true", ["-n", "2"], 1, "1 passed, 2 errors"),
        ],
    ),
)
def test_what_does_not_run_is_told_and_fails_on_ci(
    tmp_path: Path, ci: str, workers: list[str], status: int, outcome: str
) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE)
    plugins = ["-p", "support.not_run", "-p", "no:cacheprovider"]
    run = [sys.executable, "-m", "pytest", "-q", *plugins, *workers, str(suite)]
    environ = {**os.environ, "PYTHONPATH": str(TESTS), "CI": ci}
    done = subprocess.run(run, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout
    assert outcome in done.stdout
    (told,) = [line for line in done.stdout.splitlines() if line.endswith("(2 tests)")]
    assert told.startswith("NOT RUN: no server, and none to be had")


def test_without_minio_go_and_docker_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("support.kept.GO_FOLDERS", "")
    assert kept.folder().is_relative_to(tmp_path)
    with pytest.raises(kept.NotHad, match="no minio on PATH, no go to build it with, and no Docker"):
        command(tmp_path, 9000, {})


def test_without_mariadb_root_and_docker_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mariadb, "PROGRAMS", ("mariadbd",))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(kept.NotHad, match=r"no mariadbd on PATH, and only root can install it.*no Docker that answers"):
        mariadb.command(tmp_path, 3306)


def test_without_root_a_docker_that_answers_runs_mariadb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 28.0\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mariadb, "PROGRAMS", ("mariadbd",))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for run in mariadb.command(tmp_path, 3306):
        assert run[:2] == ["docker", "run"]
        assert run[run.index("--user") + 1].startswith("1000:")


def test_of_several_that_lack_mariadb_one_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As apt does it, which refuses a second one meanwhile."""
    program, busy, said = tmp_path / "mariadbd", tmp_path / "busy", tmp_path / "said"
    apt = tmp_path / "apt-get"
    apt.write_text(
        f"#!/bin/sh\nmkdir {busy} || exit 100\nsleep 0.3\necho $1 >>{said}\n"
        f"[ $1 = update ] || {{ touch {program}; chmod 755 {program}; }}\nrmdir {busy}\n"
    )
    apt.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(mariadb, "PROGRAMS", (str(program),))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with ThreadPoolExecutor(3) as several:
        asked = [several.submit(mariadb.binary) for _ in range(3)]
    assert {one.result() for one in asked} == {str(program)}
    assert said.read_text().split() == ["update", "install"]


def test_the_one_on_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "minio"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command(tmp_path / "data", 9000, {})[0] == str(program)


def test_without_go_a_docker_that_answers_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 28.0\n")
    docker.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("support.kept.GO_FOLDERS", "")
    run = command(tmp_path / "data", 9000, {"MINIO_ROOT_USER": "x"})
    assert run[:2] == ["docker", "run"]
    assert "127.0.0.1:9000:9000" in run
    assert run[run.index("--env") + 1] == "MINIO_ROOT_USER"  # the value travels by the environment


def test_a_build_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kept.NotHad, match=r"go get github.com/minio/minio@v0.0.0-2026\d+-\w+: .*no such module"):
        command(tmp_path / "data", 9000, {})
    assert all(path.name.endswith(".lock") for path in kept.folder().iterdir())
