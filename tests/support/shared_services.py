"""Services one by one on what a cluster shares: a real MySQL server and a real S3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from support import golden, mariadb, minio, plain_http
from support.mariadb import MariaDb
from support.services import Services
from tistream.storage.open import open_objects

NODES = {"meta": 2, "schema": 1, "dispatcher": 2, "sorter": 2, "api": 2}


@dataclass
class Shared:
    """Started services, with their database and the URL of their object store."""

    up: Services
    database: MariaDb
    bucket: str

    def push(self, deliveries: list[golden.Delivery]) -> None:
        """As an agent would, without announcing anything."""
        objects = open_objects(self.bucket)
        for delivery in deliveries:
            objects.put(delivery.key, delivery.data)

    def nodes(self) -> list[dict[str, Any]]:
        """Who is registered; nobody while nobody can say."""
        answer = plain_http.get(f"{self.up.url}/v1/nodes")
        found: list[dict[str, Any]] = answer.json()["nodes"] if answer.status_code == httpx.codes.OK else []
        return found


@contextmanager
def shared_services(directory: Path, nodes: dict[str, int]) -> Iterator[Shared]:
    """`nodes`: how many of each; stopped at the end."""
    with (
        mariadb.running(directory / "mariadb") as database,
        minio.running(directory / "minio") as server,
        server.credentials(),
    ):
        bucket = server.url(server.new_bucket(), "some/prefix")
        services = Services(
            directory / "services", ranges=4, nodes=nodes, database_url=database.url, objects_url=bucket
        )
        try:
            services.start()
            yield Shared(services, database, bucket)
            services.wait_ready()  # one that was started again may not have come to where it hears SIGTERM
            services.stop()
        except BaseException:
            print(services.report())
            raise
        finally:
            services.close()
