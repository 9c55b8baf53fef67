"""docs/api.md: it has every call, parameter and body member of the OpenAPI document, and its Python examples run."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.pull_world import World, golden_world
from tistream.clock import ManualClock
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.app import build_app
from tistream_api.read.cursor import Position
from tistream_api.settings import ApiSettings

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def calls() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path, operation) of every call below /v1."""
    document = build_app(ApiSettings(), MemoryObjectStore(), ManualClock()).openapi()
    for path, operations in document["paths"].items():
        if path.startswith("/v1/"):
            yield from ((method.upper(), path, operation) for method, operation in operations.items())


CALLS = list(calls())


@pytest.mark.parametrize(("method", "path", "operation"), CALLS, ids=[one["operationId"] for _, _, one in CALLS])
def test_a_call_is_on_the_page_with_its_parameters_and_members(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    below_tenant = path.startswith(TENANT) and path != TENANT
    shown = "…" + path.removeprefix(TENANT) if below_tenant else path
    assert f"`{method} {shown}`" in PAGE
    assert re.search(rf"\b{operation['operationId']}\b", PAGE)
    body = operation.get("requestBody", {"content": {"application/json": {"schema": {"properties": {}}}}})
    members = body["content"]["application/json"]["schema"]["properties"]
    names = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"] + list(members)
    assert [name for name in names if f"`{name}`" not in PAGE and f'"{name}"' not in PAGE] == []


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
