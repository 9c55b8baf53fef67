"""S3 servers for the tests of object stores: moto's, and a real MinIO."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import moto_server
from support.minio import Minio, running
from support.moto_server import Moto
from support.wire import Wire, wired


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    with moto_server.running() as server:
        yield server


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with running(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """Over TLS, as S3 is; objects are encrypted."""
    with running(tmp_path_factory.mktemp("guarded"), guarded=True) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_CA_BUNDLE", server.environ["AWS_CA_BUNDLE"])
        yield server


@pytest.fixture
def wire(minio: Minio) -> Iterator[Wire]:
    with wired(minio.port) as made:
        yield made
