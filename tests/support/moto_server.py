"""moto's S3 server in this process: the second opinion on what S3 does."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tistream.storage.backends.s3 import S3ObjectStore

KEYS = {"region": "us-east-1", "access_key": "test", "secret_key": "test"}
_buckets = itertools.count()


class Moto:
    """moto's server with one thread: with several, two conditional puts at once may both win."""

    def __init__(self, port: int) -> None:
        self.port, self.endpoint = port, f"http://127.0.0.1:{port}"
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def new_bucket(self) -> str:
        """Make one; its name."""
        name = f"bucket-{next(_buckets)}"
        self._client.create_bucket(Bucket=name)
        return name

    def store(self, bucket: str, prefix: str = "", **options: Any) -> S3ObjectStore:
        """Our client of a bucket."""
        return S3ObjectStore(bucket, prefix, **{"endpoint": self.endpoint, **KEYS, **options})


@contextmanager
def running() -> Iterator[Moto]:
    """A server, for as long as it is wanted."""
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Moto(server.server_port)
    server.shutdown()
    thread.join()
    server.server_close()
