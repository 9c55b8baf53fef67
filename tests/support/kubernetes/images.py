"""The images that deploy/k8s names: those of this repository, and those that overlay `dev` would pull."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.compose import engine
from support.compose.containers import BUILT
from support.compose.engine import docker
from support.kubernetes.cluster import Cluster

OWN = ("tistream:dev", "tistream-sorter:dev")
_MARIADB = "tistream-local/mariadb:here"
# MinIO is that of docker-compose.yml, MariaDB Debian's: neither is the one of the tag.
_STAND_INS = {"minio/minio:RELEASE.2025-09-07T16-13-09Z": "tistream-minio:dev", "mariadb:11.4.5": _MARIADB}
_SECRETS = ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "MYSQL_PASSWORD", "GRAFANA_PASSWORD")


def make() -> None:
    """As docker-compose.yml does it. Raises NoEngine."""
    engine.make_bases()
    files = [argument for path in engine.files() for argument in ("-f", str(path))]
    command = [*engine.compose(), "--project-directory", str(engine.ROOT), *files, "build", *BUILT]
    done = subprocess.run(
        command, env={**os.environ, **dict.fromkeys(_SECRETS, "none")}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise engine.NoEngine(f"the images cannot be built: {done.stderr[-1_000:]}")
    docker("build", "--quiet", "--tag", _MARIADB, str(Path(__file__).parent / "mariadb"))


def load(cluster: Cluster) -> None:
    """Onto every node."""
    for name, image in _STAND_INS.items():
        docker("tag", image, name)
    cluster.load(*OWN, *_STAND_INS)
    for name in _STAND_INS:
        docker("rmi", name)
