"""A catalog of Iceberg tables with the REST interface, over real HTTP: as much of it as a feed needs. It keeps the
tables in a catalog of SQLite. None can be had from the package registries without a Java service of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, NoSuchViewError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table

TOKEN = "hush-5570"
Views = dict[tuple[str, str], dict[str, Any]]
_CODES = {NoSuchTableError: 404, NoSuchViewError: 404, TableAlreadyExistsError: 409, CommitFailedException: 409}


def _table(table: Table) -> dict[str, Any]:
    return {"metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json())}


def _answer(catalog: Catalog, views: Views, method: str, path: list[str], body: bytes) -> Any:
    found: Any = {}
    match method, path:
        case "GET", ["config"]:
            found = {"defaults": {"view-endpoints-supported": "true"}, "overrides": {}}
        case "POST", ["namespaces", namespace, "views"]:
            view = json.loads(body)
            views[namespace, view["name"]] = {
                "view-uuid": "5570",
                "format-version": 1,
                "location": "",
                "schemas": [view["schema"]],
                "current-version-id": 1,
                "versions": [view["view-version"]],
                "version-log": [],
            }
            found = {"metadata-location": "", "metadata": views[namespace, view["name"]]}
        case "GET", ["namespaces", namespace, "views", name]:
            if (namespace, name) not in views:
                raise NoSuchViewError(name)
            found = {"metadata-location": "", "metadata": views[namespace, name]}
        case "DELETE", ["namespaces", namespace, "views", name]:
            if views.pop((namespace, name), None) is None:
                raise NoSuchViewError(name)
        case "POST", ["namespaces"]:
            catalog.create_namespace_if_not_exists(tuple(json.loads(body)["namespace"]))
            found = {"namespace": json.loads(body)["namespace"], "properties": {}}
        case "HEAD" | "GET", ["namespaces", namespace]:
            found = {"namespace": [namespace], "properties": {}}
        case "POST", ["namespaces", namespace, "tables"]:
            wanted = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
            spec = wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC
            made = (namespace, wanted.name), wanted.table_schema, None, spec
            found = _table(catalog.create_table(*made, properties=wanted.properties))
        case "GET", ["namespaces", namespace, "tables", name]:
            found = _table(catalog.load_table((namespace, name)))
        case "POST", ["namespaces", namespace, "tables", name]:
            commit = CommitTableRequest.model_validate_json(body)
            catalog.commit_table(catalog.load_table((namespace, name)), commit.requirements, commit.updates)
            found = _table(catalog.load_table((namespace, name)))
        case "POST", ["tables", "rename"]:
            ends = json.loads(body)
            catalog.rename_table(*((*ends[end]["namespace"], ends[end]["name"]) for end in ("source", "destination")))
        case _:
            raise AssertionError((method, path))
    return found


@contextmanager
def rest_catalog(root: Path) -> Iterator[str]:
    """A server for a `with` block, with its tables below a directory; yields its URL."""
    views: Views = {}
    catalog = SqlCatalog("behind", uri=f"sqlite:///{root}/behind.db", warehouse=f"file://{root}/warehouse")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = [unquote(part) for part in self.path.partition("?")[0].split("/")[2:]]
            code, found = 200, None
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                code, found = 401, {"error": {"message": "who are you?", "type": "NotAuthorizedException", "code": 401}}
            else:
                try:
                    found = _answer(catalog, views, self.command, path, body)
                except tuple(_CODES) as error:
                    code = _CODES[type(error)]
                    found = {"error": {"message": str(error), "type": type(error).__name__, "code": code}}
            answer = b"" if self.command == "HEAD" else json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_HEAD = do_DELETE = _do

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
