"""Spark's JVM starts with an archive of its classes if there is one that fits, and without it otherwise."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.effort import FULL
from tistream.service import java
from tistream.spark import class_archive


def _java(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(java.find().home / "bin" / "java"), *arguments, "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_an_archive_there_are_no_options(tmp_path: Path) -> None:
    assert class_archive.java_options(tmp_path / "nothing.jsa") == ""


@pytest.mark.parametrize("content", [b"", b"of another Java" * 1_000])
def test_java_starts_quietly_with_an_archive_that_does_not_fit(tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "a folder" / "classes.jsa"
    archive.parent.mkdir()
    archive.write_bytes(content)
    done = _java(*shlex.split(class_archive.java_options(archive)))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def _made(folder: Path) -> Path:
    archive = folder / "share" / "classes.jsa"
    # In a process of its own: it ends the JVM that PySpark keeps for all of a process's sessions.
    module = "tistream_sorter.spark.make_class_archive"
    make = f"from pathlib import Path; from {module} import make; make(Path({str(archive)!r}))"
    subprocess.run([sys.executable, "-c", make], check=True, capture_output=True)
    assert list(archive.parent.iterdir()) == [archive], "nothing else is left behind"
    return archive


@pytest.mark.spark
def test_an_archive_is_made_and_sparks_classes_come_from_it(tmp_path: Path) -> None:
    """By default of the one that the installation has made, in the soak of a new one."""
    standard = class_archive.standard_path()
    archive = _made(tmp_path) if FULL or not standard.is_file() else standard
    log = tmp_path / "classes.log"
    program = f"""
from tistream.service import java
from tistream.spark import class_archive
from tistream_sorter.spark.session import build_session
from pathlib import Path
java.ensure()
options = class_archive.java_options(Path({str(archive)!r})) + " -Xlog:class+load:file={log}"
session = build_session("local[1]", "archived", {{"spark.driver.extraJavaOptions": options}})
session.stop()
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    loaded = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    shared = [line for line in loaded if "shared objects file (top)" in line]
    assert len(shared) > len(loaded) / 2 > 500, "all but what is generated as it runs"
