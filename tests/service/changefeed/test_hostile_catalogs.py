"""What a REST catalog in a tenant's hands answers chooses neither code nor addresses in a worker."""
# Attack: an Iceberg catalog that answers with code to load, with other addresses, and with redirects

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.lake_tenant import BUILT, IMPL, T, Tenant
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_feed import lake_feed


@pytest.fixture
def tenant(tmp_path: Path) -> Tenant:
    BUILT.clear()
    return Tenant(tmp_path)


@contextmanager
def rest(answers: Mapping[str, tuple[int, Mapping[str, str], Any]], asked: list[str]) -> Iterator[str]:
    """A server for a `with` block that answers GET and POST by path: (status, headers, JSON). Yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.partition("?")[0]
            asked.append(path)
            status, headers, found = answers[path]
            body = json.dumps(found).encode()
            self.send_response(status)
            for name, text in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def rest_lake(tenant: Tenant, url: str) -> Lake:
    options = f"catalog-type=rest&catalog-uri={url}&warehouse={tenant.warehouse}"
    feed = lake_feed(f"iceberg://lake?{options}", {})
    return feed.lake({}, Allowed(["127.0.0.1"], [f"file://{tenant.root}?endpoint=https://s3.internal"]))


TABLE = "/v1/p/namespaces/d/tables/t"


def test_of_the_answers_of_a_rest_catalog_only_paths_and_lent_keys_are_used(tenant: Tenant) -> None:
    table = tenant.table()
    hostile = {"s3.endpoint": "http://10.0.0.5", "s3.proxy-uri": "http://10.0.0.5", "py-io-impl": IMPL}
    keys = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token": "c"}
    config = {"defaults": {"/bin/sh": "", **hostile}, "overrides": {**hostile, "prefix": "p", "auth": {"impl": IMPL}}}
    metadata = json.loads(table.metadata.model_dump_json())
    answer = {"metadata-location": table.metadata_location, "metadata": metadata, "config": {**hostile, **keys}}
    bad = {**metadata, "properties": {"write.py-location-provider.impl": IMPL}}
    asked: list[str] = []
    answers: dict[str, tuple[int, dict[str, str], Any]] = {"/v1/config": (200, {}, config), TABLE: (200, {}, answer)}
    with rest(answers, asked) as url:
        lake = rest_lake(tenant, url)
        found = lake.load(T)
        assert found is not None
        used = {**keys, "warehouse": found.location(), "s3.endpoint": "https://s3.internal"}
        assert found.io.properties == used
        answers[TABLE] = (200, {}, {**answer, "metadata": bad})
        with pytest.raises(FeedFailed, match=r"write\.py-location-provider\.impl"), lake.asking("t"):
            found.transaction().set_properties(a="b").commit_transaction()
        lake.close()
    assert not BUILT
    assert asked == ["/v1/config", TABLE, TABLE]


def test_a_rest_catalog_leads_to_no_other_address(tenant: Tenant) -> None:
    asked: list[str] = []
    other = "http://localhost:1/x"
    config: Any = {"/v1/config": (200, {}, {"overrides": {"uri": other}})}
    moved: Any = (307, {"Location": other}, {})
    for answers in (
        config,
        {"/v1/config": moved},
        {"/v1/config": (200, {}, {"overrides": {"prefix": "p"}}), TABLE: moved},
    ):
        with rest(answers, asked) as url, pytest.raises(FeedFailed, match=f"names another address, '{other}'"):
            rest_lake(tenant, url).load(T)
    assert asked == ["/v1/config", "/v1/config", "/v1/config", TABLE]
