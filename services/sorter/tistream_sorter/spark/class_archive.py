"""An archive of the classes that Spark's JVM loads at its start (Java's class data sharing), made once an installation.

With it a start takes about half of the CPU time: classes are mapped instead of read from jars and checked. Java itself
finds out whether an archive fits its version and Spark's jars, and starts without it if not.

`python -m tistream_sorter.spark.make_class_archive` makes it, by one start and end of Spark.
"""

from __future__ import annotations

import sys
from pathlib import Path


def standard_path() -> Path:
    """Where it lies: in the Python environment that Spark is part of."""
    return Path(sys.prefix) / "share" / "tistream" / "spark-classes.jsa"


def java_options(archive: Path) -> str:
    """Options of a JVM that uses the archive if it is there and fits; none if it is not there."""
    # Java tells on stdout that an archive does not fit; nobody could do anything about that while a service starts.
    return f'-XX:SharedArchiveFile="{archive}" -Xshare:auto -Xlog:cds=off' if archive.is_file() else ""
