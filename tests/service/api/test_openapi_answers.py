"""The OpenAPI document is valid, and what a running server answers is what it describes, member by member."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from support import plain_http
from support.access_calls import Call, calls, document
from support.access_world import Guarded
from support.effort import FULL
from support.waiting import PATIENCE_S
from tistream.wire.tokens import EVERYTHING

DOCUMENT = document()
CALLS = {call.name: call for call in calls(DOCUMENT)}
# Last: what these do would change the answers of the others.
ENDS = ("PauseTenant", "DeleteTenant", "KeepTenant", "RevokeToken")
# How many pages of one line are asked for, and of which rows the members are compared.
PAGES, EACH_ROW = (200, 1) if FULL else (80, 7)


@pytest.fixture(scope="module")
def world(guarded_api: Guarded, spent: None) -> Guarded:
    return guarded_api


@pytest.fixture(scope="module")
def client(world: Guarded) -> Iterator[httpx.Client]:
    header = world.known(world.token(EVERYTHING.model_dump()))
    options: dict[str, Any] = {"headers": {"Authorization": header}, "timeout": PATIENCE_S, "trust_env": False}
    with plain_http.client(base_url=world.url, **options) as one:
        yield one


def closed(schema: Any) -> Any:
    """The schema, with no member allowed that it does not describe."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(one) for name, one in schema.items()}
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


COMPONENTS = closed(DOCUMENT["components"])


def answers_of(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][call.template][call.method.lower()]["responses"]
    return found


def matches(schema: dict[str, Any], value: object) -> None:
    """Fail with the first difference."""
    errors = Draft202012Validator({**closed(schema), "components": COMPONENTS}).iter_errors(value)
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def described(call: Call, answer: httpx.Response) -> None:
    """The status, the media type and the body are in the document."""
    told = answers_of(call)
    assert str(answer.status_code) in told, (answer.status_code, answer.text)
    kind = answer.headers["content-type"]
    matches(told[str(answer.status_code)]["content"][kind]["schema"], answer.json())


def send(client: httpx.Client, world: Guarded, call: Call, more: str = "") -> httpx.Response:
    path = call.path(world.mine)
    path = f"{path}{'&' if '?' in path else '?'}{more}" if more else path
    return client.request(call.method, path, content=call.content(world.mine))


def test_the_document_is_valid_openapi() -> None:
    validate(DOCUMENT)


@pytest.mark.parametrize("name", CALLS)
def test_every_call_describes_its_answer(name: str) -> None:
    told = answers_of(CALLS[name])
    (status,) = [status for status in told if status.startswith("2")]
    for kind, content in told[status]["content"].items():
        assert content["schema"], kind
    for other in told.keys() - {status}:
        assert told[other]["content"] == {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        }


@pytest.mark.parametrize("name", sorted(CALLS, key=lambda name: name in ENDS))
def test_what_is_answered_is_described(world: Guarded, client: httpx.Client, name: str) -> None:
    described(CALLS[name], send(client, world, CALLS[name]))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_the_parameters_that_it_describes_and_no_other(
    world: Guarded, client: httpx.Client, name: str
) -> None:
    call = CALLS[name]
    parameters = DOCUMENT["paths"][call.template][call.method.lower()].get("parameters", ())
    known = [one["name"] for one in parameters if one["in"] == "query"]
    answer = send(client, world, call, "Unknown=1")
    described(call, answer)
    taken = f"this call takes {', '.join(known)}" if known else "this call takes none"
    told = answer.json()
    assert (answer.status_code, told["type"]) == (400, "tistream:bad-request")
    assert (told["detail"], told["parameter"]) == (f"unknown parameter 'Unknown'; {taken}", "Unknown")
    for one in known:
        twice = send(client, world, call, f"{one}=1&{one}=1").json()
        assert (twice["detail"], twice["parameter"]) == (f"{one} is given more than once", one)
        given = f"{one}=" in call.path(world.mine)
        wrong = None if given else send(client, world, call, f"{one}=%20")
        if wrong is not None and one not in ("cursor", "cluster_id", "tenant_id", "namespace", "columns"):  # texts
            described(call, wrong)
            assert (wrong.status_code, wrong.json()["parameter"]) == (400, one)


def test_a_wrong_parameter_is_not_looked_at_before_the_token(world: Guarded) -> None:
    for call in CALLS.values():
        path = f"{call.path(world.mine)}{'&' if '?' in call.path(world.mine) else '?'}Unknown=1"
        answer = plain_http.request(call.method, world.url + path)
        if call.name == "Notify":  # its body names the tenant, and is read first
            continue
        assert answer.status_code == 401, call.name


@pytest.mark.parametrize("more", ["limit=100000", "limit=1"])
def test_lines_of_pulls_are_described(world: Guarded, client: httpx.Client, more: str) -> None:
    call = CALLS["PullTenant"]
    base = call.path(world.mine).partition("?")[0]
    schema = answers_of(call)["200"]["content"]["application/x-ndjson"]["schema"]
    validator = Draft202012Validator({**closed(schema), "components": COMPONENTS})
    at, seen = f"start_ts={client.get(base + '?start_ts=0').json()['earliest_ts']}", Counter[str]()
    for _ in range(PAGES):
        answer = client.get(f"{base}?{at}&{more}")
        assert answer.status_code == 200, answer.text
        lines = [json.loads(line) for line in answer.text.splitlines()]
        for line in lines:
            seen[line["type"]] += 1
            if line["type"] == "row" and seen["row"] % EACH_ROW:
                continue
            errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(line)]
            assert errors == [], line
        at = f"cursor={lines[-1]['cursor']}"
        if len(lines) == 1:
            break
    assert seen.keys() == ({"row", "ddl", "resolved"} if more != "limit=1" else {"row", "ddl", "resolved", "continue"})
