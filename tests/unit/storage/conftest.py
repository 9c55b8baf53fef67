"""S3 servers for the tests of object stores: moto's, and a real MinIO."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import moto_server
from support.minio import Minio, NoMinio
from support.moto_server import Moto
from support.not_run import not_run
from support.wire import Wire, wired


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    with moto_server.running() as server:
        yield server


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    server = Minio(tmp_path_factory.mktemp("minio"))
    try:
        server.start()
    except NoMinio as reason:
        not_run(reason)
    yield server
    server.stop()


@pytest.fixture
def wire(minio: Minio) -> Iterator[Wire]:
    with wired(minio.port) as made:
        yield made
