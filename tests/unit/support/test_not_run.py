"""A real server that cannot be had is told at the end of a run, and with CI set it fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.minio import NoMinio, cache_folder, command

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
    [
        ("", [], 0, "1 passed, 2 skipped"),
        ("false", ["-n", "2"], 0, "1 passed, 2 skipped"),
        ("true", [], 1, "1 passed, 2 errors"),
        ("true", ["-n", "2"], 1, "1 passed, 2 errors"),
    ],
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
    monkeypatch.setattr("support.minio.GO_FOLDERS", "")
    assert cache_folder().is_relative_to(tmp_path)
    with pytest.raises(NoMinio, match="no minio on PATH, no go to build it with, and no Docker"):
        command(tmp_path, 9000, {})


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
    monkeypatch.setattr("support.minio.GO_FOLDERS", "")
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
    with pytest.raises(NoMinio, match=r"go install github.com/minio/minio@v0.0.0-2026\d+-\w+: .*no such module"):
        command(tmp_path / "data", 9000, {})
    assert [path.name for path in cache_folder().iterdir()] == ["lock"]
