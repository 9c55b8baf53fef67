"""An archive of the classes that Spark's JVM loads when it starts (Java's class data sharing). It is made once.

With the archive, a start needs about half of the CPU time, because classes are mapped instead of read from jars and
verified. Java checks whether the archive fits its version and Spark's jars, and starts without the archive if it does
not.

`python -m tistream_sorter.spark.make_class_archive` makes the archive by starting and stopping Spark once.
"""

from __future__ import annotations

import sys
from pathlib import Path


def standard_path() -> Path:
    """The path of the archive, in the Python environment of Spark."""
    return Path(sys.prefix) / "share" / "tistream" / "spark-classes.jsa"


def java_options(archive: Path) -> str:
    """The JVM options that make Java use the archive, if the archive fits Java's version and Spark's jars. An empty
    text if the archive does not exist."""
    # Without this option, Java prints to stdout that an archive does not fit, which does not help while a service
    # starts.
    return f'-XX:SharedArchiveFile="{archive}" -Xshare:auto -Xlog:cds=off' if archive.is_file() else ""
