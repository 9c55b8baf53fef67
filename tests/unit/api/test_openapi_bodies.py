"""Bodies in the OpenAPI document have the members that their models read, and take null where these do."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from support.access_calls import calls, document
from tistream.wire import meta
from tistream.wire.bulk.backfills import StartBackfill
from tistream.wire.bulk.feed_changes import ResumeChangefeed, SkipEvent, UpdateChangefeed
from tistream.wire.bulk.feed_verify import VerifyChangefeed
from tistream.wire.bulk.restores import CreateRestore
from tistream.wire.bulk.secrets import PutSecret
from tistream.wire.bulk.sources import AddSource
from tistream.wire.bulk.territories import AddTerritory, ReplaceTerritories
from tistream.wire.tokens import NewToken
from tistream.wire.usage import SetQuotas
from tistream_api.feeds.config_text import CreateBody
from tistream_api.request.undo_body import UndoBody

CALLS = {call.name: call for call in calls(document())}
MODELS: dict[str, type[BaseModel]] = {
    "AddSource": AddSource,
    "AddTerritory": AddTerritory,
    "CreateChangefeed": CreateBody,
    "CreateRestore": CreateRestore,
    "CreateTenant": meta.CreateTenant,
    "CreateToken": NewToken,
    "DeleteTenant": meta.DeleteTenant,
    "DrainNode": meta.DrainNode,
    "MergeTasks": meta.MergeTasks,
    "MoveTask": meta.MoveTask,
    "Notify": meta.Notification,
    "PauseTenant": meta.PauseTenant,
    "PutSecret": PutSecret,
    "ReplaceTerritories": ReplaceTerritories,
    "ResumeChangefeed": ResumeChangefeed,
    "RetireStore": meta.RetireOrder,
    "SetEncryption": meta.SetEncryption,
    "SetQuotas": SetQuotas,
    "SetRetention": meta.SetRetention,
    "SkipEvent": SkipEvent,
    "SplitTask": meta.SplitTask,
    "StartBackfill": StartBackfill,
    "UndoTransactions": UndoBody,
    "UpdateChangefeed": UpdateChangefeed,
    "VerifyChangefeed": VerifyChangefeed,
}


def test_every_body_has_a_model() -> None:
    assert {name for name, call in CALLS.items() if call.body is not None} == MODELS.keys()


def takes_null(schema: dict[str, Any]) -> bool:
    return "null" in schema.get("type", ()) or {"type": "null"} in schema.get("anyOf", ())


@pytest.mark.parametrize("name", MODELS)
def test_members_are_those_that_the_model_reads(name: str) -> None:
    told, read = CALLS[name].body, MODELS[name].model_json_schema()
    assert told is not None
    assert told["additionalProperties"] is read["additionalProperties"] is False
    assert told["properties"].keys() == read["properties"].keys()
    # A client that sends what the document requires is never refused for a member that is missing.
    assert set(read.get("required", ())) <= set(told["required"])
    for member, schema in told["properties"].items():
        assert takes_null(schema) == takes_null(read["properties"][member]), member
