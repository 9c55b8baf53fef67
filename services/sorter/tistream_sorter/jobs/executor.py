"""The command `python -m tistream_sorter.jobs.executor`: starts a Spark executor in a Kubernetes pod.

In Spark's own images, a shell script (`kubernetes/dockerfiles/spark/entrypoint.sh` of Spark 4) builds the executor's
command line from environment variables, which the driver's Kubernetes backend sets in the pod. Our image has PySpark
from PyPI, with the same jars but without the script. This module does the script's work for executors, and then
replaces its own process by Java (exec).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tistream.service import java

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
# Argument of the backend -> environment variable that the driver sets.
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(environ: Mapping[str, str], program: Path, jars: Path) -> list[str]:
    """The command line of a Spark executor. `program`: the path of Java; `jars`: the folder of Spark's jars; `environ`:
    the environment variables of the pod. Raises KeyError if a variable is not set."""
    options = sorted((int(found[1]), name) for name in environ if (found := _OPTION.fullmatch(name)))
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    arguments = [part for name, variable in _ARGUMENTS.items() for part in (name, environ[variable])]
    classes = ":".join(filter(None, (environ.get("SPARK_CLASSPATH"), f"{jars}/*")))
    return [
        str(program),
        *(environ[name] for _, name in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        classes,
        BACKEND,
        *arguments,
    ]


def main() -> None:
    """Replace this process by the executor. Outside of a pod that Spark's driver created, print one line on stderr and
    exit with status 2."""
    import pyspark  # noqa: PLC0415 - takes half a second

    home = Path(pyspark.__file__).parent
    program = java.ensure().home / "bin" / "java"
    os.environ.setdefault("SPARK_HOME", str(home))
    try:
        line = command(os.environ, program, home / "jars")
    except KeyError as error:
        sys.stderr.write(f"this is not a pod that Spark created for an executor: {error.args[0]} is not set\n")
        raise SystemExit(2) from None
    os.execv(program, line)


if __name__ == "__main__":
    main()
