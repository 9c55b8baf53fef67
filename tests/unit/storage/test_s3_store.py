from __future__ import annotations

import http.server
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from support.contracts.object_store import ObjectStoreContract
from tistream.errors import CommitStateUnknown, InvalidRequest, NotFoundYet, Unavailable
from tistream.storage.object_store import ObjectStore
from tistream.storage.s3 import S3ObjectStore

KEYS = {"region": "us-east-1", "access_key": "test", "secret_key": "test"}
buckets = itertools.count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """moto's server with one thread: with several, two conditional puts at once may both win."""
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def client(endpoint: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


@pytest.fixture
def bucket(client: Any) -> str:
    name = f"bucket-{next(buckets)}"
    client.create_bucket(Bucket=name)
    return name


class TestS3ObjectStore(ObjectStoreContract):
    @pytest.fixture
    def objects(self, endpoint: str, bucket: str) -> ObjectStore:
        return S3ObjectStore(bucket, endpoint=endpoint, list_page=10, **KEYS)


class TestS3ObjectStoreBelowAPrefix(ObjectStoreContract):
    @pytest.fixture
    def objects(self, endpoint: str, bucket: str) -> ObjectStore:
        S3ObjectStore(bucket, "env/production-2/", endpoint=endpoint, **KEYS).put("other", b"1")
        return S3ObjectStore(bucket, "env/production/", endpoint=endpoint, list_page=10, **KEYS)


def test_a_prefix_ends_in_a_slash() -> None:
    with pytest.raises(InvalidRequest):
        S3ObjectStore("bucket", "env")


def test_a_missing_bucket_is_no_missing_object(endpoint: str) -> None:
    store = S3ObjectStore("no-such-bucket", endpoint=endpoint, **KEYS)
    with pytest.raises(Unavailable):
        store.get("k")
    with pytest.raises(Unavailable):
        store.put_new("k", b"")


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers every request with one status, or with silence, and counts."""

    protocol_version = "HTTP/1.1"  # answers "Expect: 100-continue", for which a client waits a second otherwise
    status: int | None = 503
    code = "SlowDown"
    requests = 0
    release = threading.Event()

    def answer(self) -> None:
        type(self).requests += 1
        if self.status is None:
            self.release.wait(10)
            self.close_connection = True
            return
        body = f"<Error><Code>{self.code}</Code><Message>no</Message></Error>".encode()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = answer

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def refusing() -> Iterator[tuple[type[Refusing], S3ObjectStore]]:
    handler = type("Handler", (Refusing,), {"release": threading.Event()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    yield handler, S3ObjectStore("bucket", endpoint=url, read_seconds=0.2, **KEYS)
    handler.release.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (503, "SlowDown", CommitStateUnknown),
        (500, "InternalError", CommitStateUnknown),
        (409, "ConditionalRequestConflict", CommitStateUnknown),
        (None, "", CommitStateUnknown),
        (403, "AccessDenied", Unavailable),
        (400, "InvalidBucketName", Unavailable),
    ],
)
def test_a_conditional_put_is_one_request(
    refusing: tuple[type[Refusing], S3ObjectStore], status: int | None, code: str, error: type[Exception]
) -> None:
    handler, store = refusing
    handler.status, handler.code = status, code
    with pytest.raises(error):
        store.put_new("k", b"body")
    assert handler.requests == 1
    with pytest.raises(error):
        store.put_if("k", b"body", '"etag"')
    assert handler.requests == 2


def test_a_read_is_tried_again(refusing: tuple[type[Refusing], S3ObjectStore]) -> None:
    handler, store = refusing
    handler.status, handler.code = 404, "NoSuchKey"
    with pytest.raises(NotFoundYet):
        store.get("k")
    assert handler.requests == 1
    handler.status, handler.code = 500, "InternalError"
    with pytest.raises(Unavailable):
        store.get("k")
    assert handler.requests > 2


def test_nobody_there_means_that_nothing_happened() -> None:
    store = S3ObjectStore("bucket", endpoint="http://127.0.0.1:9", connect_seconds=0.2, **KEYS)
    with pytest.raises(Unavailable):
        store.put_new("k", b"body")
