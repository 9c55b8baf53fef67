"""A schema registry with Confluent's REST interface, over real HTTP: as much of it as a producer needs.

No registry can be had from the package registries without a Java service of its own. Schemas are checked by fastavro,
and new ones for compatibility (BACKWARD, the default of Confluent): a reader of the new schema must understand what was
written with the newest one.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import fastavro
from fastavro.schema import SchemaParseException

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


@dataclass
class Registry:
    """The state of a server. Subjects share ids: one schema text has one id, as in Confluent's registry."""

    url: str = ""
    ids: dict[str, int] = field(default_factory=dict)  # by schema text
    subjects: dict[str, list[str]] = field(default_factory=dict)
    posts: list[str] = field(default_factory=list)  # the subjects of all POSTs
    failing: int = 0  # answers of 503 that are still to come
    compatible: bool = True  # whether new schemas are checked; False is Confluent's compatibility NONE
    credentials: str = ""  # user:password that calls must have; empty: none

    def register(self, subject: str, schema: str) -> tuple[int, dict[str, Any]]:
        """(status, answer) of a POST."""
        try:
            parsed = fastavro.parse_schema(as_java_reads(json.loads(schema)))
        except (SchemaParseException, ValueError) as error:
            return 422, {"error_code": 42201, "message": f"Invalid schema: {error}"}
        known = self.subjects.setdefault(subject, [])
        if schema not in known:
            if self.compatible and known and (reason := conflict(parsed, json.loads(known[-1]))):
                return 409, {"error_code": 409, "message": f"Schema being registered is incompatible: {reason}"}
            known.append(schema)
        return 200, {"id": self.ids.setdefault(schema, len(self.ids) + 1)}

    def schema_of(self, number: int) -> Any:
        """The parsed schema with this id."""
        return as_java_reads(json.loads(next(schema for schema, known in self.ids.items() if known == number)))


def as_java_reads(schema: Any) -> Any:
    """The schema with numbers that have a point as defaults of float and double: Avro's Java library, which the real
    registry is made with, takes any number there, and fastavro does not."""
    for one in schema.get("fields", ()) if isinstance(schema, dict) else ():
        if type(one.get("default")) is int and _branches(one["type"]) & {"float", "double"}:
            one["default"] = float(one["default"])
    return schema


def conflict(new: Any, old: Any) -> str:
    """Why a reader of the record `new` does not understand records of `old`; empty if it does."""
    before = {one["name"]: one["type"] for one in old["fields"]}
    for one in new["fields"]:
        if one["name"] not in before:
            if "default" not in one:
                return f"the field {one['name']} has no default"
        elif not _readable(_branches(one["type"]), _branches(before[one["name"]])):
            return f"the type of the field {one['name']} changed"
    return ""


def _branches(kind: Any) -> set[str]:
    found = kind if isinstance(kind, list) else [kind]
    return {one if isinstance(one, str) else one["type"] for one in found}


def _readable(new: set[str], old: set[str]) -> bool:
    return all(one in new or _PROMOTIONS.get(one, set()) & new for one in old)


@contextmanager
def registry() -> Iterator[Registry]:
    """A running registry on a free port of 127.0.0.1."""
    state = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            subject = self.path.split("/")[2]
            state.posts.append(unquote(subject))
            self._answer(*self._checked() or state.register(unquote(subject), json.loads(body)["schema"]))

        def do_GET(self) -> None:
            subject = unquote(self.path.split("/")[2])
            self._answer(200, {"schema": state.subjects[subject][-1]})

        def _checked(self) -> tuple[int, dict[str, Any]] | None:
            if state.failing:
                state.failing -= 1
                return 503, {"error_code": 50003, "message": "leader not known"}
            wanted = "Basic " + base64.b64encode(state.credentials.encode()).decode()
            if state.credentials and self.headers.get("authorization") != wanted:
                return 401, {"error_code": 401, "message": "Unauthorized"}
            return None

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: a test's report has the calls."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
