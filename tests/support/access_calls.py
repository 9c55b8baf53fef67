"""Calls made from an OpenAPI document: every route, aimed at one tenant, and the tokens that should not open it."""

from __future__ import annotations

import functools
import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from support.waiting import PATIENCE_S
from tistream.cause import HEADER
from tistream.clock import SystemClock
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.app import build_app
from tistream_api.settings import ApiSettings

DECLARED = "x-tistream-access"
LEVELS = ("platform", "cluster", "tenant", "database", "table")


# What a call cannot do without
_KEY = quote('{"id":"1"}')
QUERIES = {
    "ListRows": "ts=1",
    "RowHistory": f"key={_KEY}",
    "DiffTable": "from=1",
    "RawValue": "key=61",
    "ChangeParts": "start_ts=1",
    "SignedChanges": "start_ts=1",
}


@dataclass(frozen=True)
class Target:
    """The resource that calls are aimed at: names for the path parameters, and members of bodies."""

    cluster: str
    tenant: str
    database: str
    table: str
    token_id: str
    others: Mapping[str, str] = field(
        default_factory=lambda: {
            "node_id": "no-such-node",
            "task_id": "999999999",
            "store_id": "999999999",
            "start_ts": "999999999",
            "source_id": "no-such-source",
            "backfill_id": "b999",
            "restore_id": "0" * 32,
            "changefeed_id": "no-such-feed",
            "name": "no-such-secret",
            "territory": "999999999",
        }
    )

    def parameter(self, name: str) -> str:
        own = {
            "cluster_id": self.cluster,
            "tenant_id": self.tenant,
            "db": self.database,
            "table": self.table,
            "token_id": self.token_id,
        }
        return {**self.others, **own}[name]

    def grant(self, actions: list[str], scope: str) -> dict[str, Any]:
        """A grant for the target's names down to the level `scope`."""
        names = (self.cluster, self.tenant, self.database, self.table)
        return {"actions": actions, **dict(zip(LEVELS[1:], names[: LEVELS.index(scope)], strict=False))}


@dataclass(frozen=True)
class Call:
    """One operation of the OpenAPI document. `actions` and `scope` are those that it declares."""

    name: str
    method: str
    template: str
    parameters: tuple[str, ...]
    body: dict[str, Any] | None
    actions: tuple[str, ...]
    scope: str
    partly: bool

    def path(self, target: Target, **instead: str) -> str:
        """The path with the names of the target, percent-encoded, or with other names unchanged."""
        path = self.template
        for name in self.parameters:
            path = path.replace(f"{{{name}}}", instead.get(name) or quote(target.parameter(name), safe=""))
        query = "start_ts=0" if self.name.startswith("Pull") else QUERIES.get(self.name)
        return path if query is None else f"{path}?{query}"

    def content(self, target: Target) -> bytes | None:
        """A request body that the call accepts."""
        if self.body is None:
            return None
        made = {name: _example(name, schema, target) for name, schema in self.body["properties"].items()}
        return json.dumps({name: value for name, value in made.items() if value is not None}).encode()


def _example(name: str, schema: Mapping[str, Any], target: Target) -> object:
    known: dict[str, object] = {
        "cluster_id": target.cluster,
        "tenant_id": target.tenant,
        "store_id": "1",
        "ts": "470597720332304384",
        "retention_ms": "360000000",
        "draining": False,
        "paused": False,
        "discard": False,
        "confirm": "not-its-name",
        "grace_ms": "86400000",
        "neighbour": 1,
        "node_id": "no-such-node",
        "label": "made by a test",
        "kind": "log-backup",
        "url": "file:///no/such/folder",
        "snapshot": {"kind": "none"},
        "source": {"kind": "push"},
        "tables": ["*.*"],
        "scope": {"database": target.database, "table": target.table},
        "target": {"kind": "parquet", "url": "file:///no/such/folder"},
        "if_exists": "fail",
        "changefeed_id": "new-feed",
        "sink_uri": "kafka://127.0.0.1:1/topic",
        "config": {},
        "commit_ts": "470597720332304384",
        "table": f"{target.database}.{target.table}",
        "key": "7480",
        "reason": "named by a test",
        "value": "hunter2",
        "territory": "1",
        "territories": ["999999999"],
        "by": [],
        "pd": "127.0.0.1:1",
        "pd_cluster_id": "17",
        "keyspace": "",
        "start_key": "",
        "end_key": "",
        "grants": [target.grant(["read"], "tenant")],
    }
    if name in known and known[name] in schema.get("enum", [known[name]]):
        return known[name]
    if "enum" in schema:
        return schema["enum"][0]
    kinds = schema.get("type", [])
    assert "null" in kinds, f"no example of {name}: {schema}"
    return None


@functools.cache
def document() -> Mapping[str, Any]:
    """The API's OpenAPI document as a client gets it, made once per process: it takes a second."""
    found: dict[str, Any] = json.loads(
        json.dumps(build_app(ApiSettings(), MemoryObjectStore(), SystemClock()).openapi())
    )
    return found


def calls(document: Mapping[str, Any]) -> Iterator[Call]:
    """Every operation that requires a token."""
    for template, operations in document["paths"].items():
        for method, operation in operations.items():
            if "operations" in operation["tags"]:
                continue
            told = operation[DECLARED]
            content = operation.get("requestBody", {}).get("content", {})
            yield Call(
                operation["operationId"],
                method.upper(),
                template,
                tuple(one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"),
                content["application/json"]["schema"] if content else None,
                tuple(told["action"].split("|")),
                told["scope"],
                bool(told.get("partly")),
            )


@dataclass(frozen=True)
class Answer:
    status: int
    raw: bytes  # headers and body

    @property
    def headers(self) -> str:
        return self.raw.partition(b"\r\n\r\n")[0].decode("latin-1").lower()


def send(url: str, method: str, path: str, authorization: str | None, body: bytes | None = None) -> Answer:
    """Send a request with the path unchanged, because HTTP clients normalise paths."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        headers = {HEADER: "same"}  # else each answer would be under a cause of its own, and no two alike
        if authorization is not None:
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in {**headers, "Content-Length": str(len(body or b""))}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        head = "".join(f"{name}: {value}\r\n" for name, value in answer.getheaders())
        return Answer(answer.status, head.encode("latin-1") + b"\r\n\r\n" + answer.read())
    finally:
        connection.close()
