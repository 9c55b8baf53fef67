"""docs/api.md names every call of the OpenAPI document, docs/api-calls.md has its parameters and body members; the
Python examples run."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.access_calls import document
from support.pull_world import World, golden_world
from tistream.read.cursor import Position

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "api.md").read_text()
SECTIONS = dict(
    re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", (DOCS / "api-calls.md").read_text(), re.MULTILINE | re.DOTALL)
)
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def calls() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path, operation) of every call below /v1."""
    for path, operations in document()["paths"].items():
        if path.startswith("/v1/"):
            yield from ((method.upper(), path, operation) for method, operation in operations.items())


CALLS = list(calls())


@pytest.mark.parametrize(("method", "path", "operation"), CALLS, ids=[one["operationId"] for _, _, one in CALLS])
def test_a_call_is_on_both_pages_with_its_parameters_and_members(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    assert re.search(rf"\b{operation['operationId']}\b", PAGE)
    section = SECTIONS[operation["operationId"]]
    assert f"`{method} {path}`" in section
    body = operation.get("requestBody", {"content": {"application/json": {"schema": {"properties": {}}}}})
    members = body["content"]["application/json"]["schema"]["properties"]
    names = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"] + list(members)
    assert [name for name in names if f"| `{name}` |" not in section] == []


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything")


def test_the_example_for_one_stream_reads_all_rows_and_the_cursor(world: World) -> None:
    database, table = "types", "everything"
    start = Position(world.snapshot_ts)
    names: dict[str, Any] = {
        "pyarrow": pa,
        "body": world.pull(database, table, start=start, form="arrow", events="rows", limit=3),
    }
    exec(EXAMPLES[0], names)
    assert names["table"].num_rows == 3
    assert names["end"][b"tistream.cursor"]


def test_the_example_for_several_streams_reads_every_stream(world: World) -> None:
    body = world.pull(start=Position(world.snapshot_ts), form="arrow", events="all", limit=500)
    kinds: list[bytes] = []
    names: dict[str, Any] = {"pyarrow": pa, "source": io.BytesIO(body), "size": len(body), "kinds": kinds}
    exec(EXAMPLES[1].replace("...", "kinds.append(kind)"), names)
    assert set(kinds) == {b"row", b"ddl", b"resolved"}
