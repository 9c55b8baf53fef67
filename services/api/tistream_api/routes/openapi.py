"""Describes answers and request bodies in the OpenAPI document. FastAPI describes the parameters itself, from the
models in queries.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from tistream.model.retention import RETENTION_MAX_MS, RETENTION_MIN_MS
from tistream.wire.api import Problem
from tistream.wire.bulk.backfills import PATTERN_MAX, TABLES_MAX
from tistream.wire.bulk.sources import URL_MAX
from tistream.wire.changes import LINES
from tistream.wire.limits import QUOTA_MAX, Limits
from tistream.wire.meta import DELETE_GRACE_MS, KMS_KEY_ID_PATTERN
from tistream_api.encode.encoding import FORMATS

_SCHEMAS = "#/components/schemas/{model}"
LIMIT: dict[str, Any] = {
    "type": ["integer", "null"],
    "minimum": 0,
    "maximum": QUOTA_MAX,
    "description": "null: the default of the settings; 0: no limit (pulls_at_once: half of what a server allows)",
}

RETENTION: dict[str, Any] = {
    "type": ["string", "null"],
    "pattern": "^[0-9]{1,19}$",
    "description": f"milliseconds, {RETENTION_MIN_MS} to {RETENTION_MAX_MS}; null: for ever",
}
KMS_KEY_ID: dict[str, Any] = {
    "type": ["string", "null"],
    "pattern": KMS_KEY_ID_PATTERN,
    "description": "id, alias or ARN of a key of the object store's key management; null: no key of its own",
}
_MODE: JsonSchemaMode = "serialization"
_STAMP = {"type": "string", "pattern": "^[0-9]+$"}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": _SCHEMAS.format(model="Problem")}}}
_DESCRIBED = {
    400: "a bad parameter, or a bad body",
    401: "no token, or one that is not valid",
    403: "the token does not grant this; that says nothing of what is there",
    404: "an unknown name",
    409: "it is there, and differs; of a read: rows of the table are not known at this time, base_ts has since when",
    410: "the ts lies below the earliest one kept; earliest_ts says which",
    422: "a row that no schema can decode stands next (table, key, reason), or rows were imported into the table",
    429: "more than a limit allows; Retry-After",
    503: "cannot be answered yet; Retry-After",
}

# Models that no route's response_model names: FastAPI describes those alone
_MODELS: list[type[BaseModel]] = [Problem, *LINES.values()]
Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """The descriptions of error answers with these statuses, and with 401, 403 and 429, which the gate gives for every
    call. The key `default` keeps FastAPI from adding a description of its own error format, which no call returns."""
    every = sorted({*statuses, 401, 403, 429})  # the gate's answers
    described: Responses = {status: {"description": _DESCRIBED[status], "content": _PROBLEM} for status in every}
    return {**described, "default": {"description": "any other problem", "content": _PROBLEM}}


PULL_PROBLEMS = POINT_PROBLEMS = problems(400, 404, 409, 410, 422, 429, 503)
LIST_PROBLEMS = problems(400, 404, 410, 503)
TENANT_PROBLEMS = problems(400, 404, 503)
CREATE_PROBLEMS = problems(400, 409, 503)
NOTIFY_PROBLEMS = problems(400, 503)
OPERATE_PROBLEMS = problems(400, 404, 503)
SOURCE_PROBLEMS = problems(400, 404, 409, 422, 503)
CANCEL_PROBLEMS = problems(400, 404, 409, 503)
BACKFILL_PROBLEMS = problems(400, 404, 409, 422, 503)
RESTORE_PROBLEMS = problems(400, 404, 409, 410, 422, 503)
TOKEN_PROBLEMS = problems(400, 404, 409, 503)


def schemas() -> dict[str, Any]:
    """The schemas of the components that `problems` and `pull_doc` refer to."""
    _, found = models_json_schema([(model, _MODE) for model in _MODELS], ref_template=_SCHEMAS)
    defined: dict[str, Any] = found["$defs"]
    return defined


def pull_doc() -> dict[str, Any]:
    """The `openapi_extra` of PullTable, PullDB, PullTenant and PullRaw: the content of their answers in each format."""
    names = {name: _SCHEMAS.format(model=model.__name__) for name, model in LINES.items()}
    line: dict[str, Any] = {
        "description": "one line; the last one is of type resolved or continue",
        "oneOf": [{"$ref": ref} for ref in names.values()],
        "discriminator": {"propertyName": "type", "mapping": names},
    }
    bytes_ = {"schema": {"type": "string", "format": "binary"}}
    content = {form.media_type: {"schema": line} if name == "ndjson" else bytes_ for name, form in FORMATS.items()}
    events = {"description": "events in the requested format; ndjson: one a line", "content": content}
    return {"responses": {"200": events}}


def events_doc() -> dict[str, Any]:
    """The `openapi_extra` of a call that answers with events in the requested format. The parameters are not in it,
    because FastAPI takes them from a model."""
    return {"responses": pull_doc()["responses"]}


def rows_doc(media_types: Mapping[str, str]) -> dict[str, Any]:
    """The `openapi_extra` of ListRows. `media_types`: the media type of each format."""
    text, bytes_ = {"schema": {"type": "string"}}, {"schema": {"type": "string", "format": "binary"}}
    content = {media_type: text if name == "ndjson" else bytes_ for name, media_type in media_types.items()}
    return {
        "responses": {"200": {"description": "rows in the requested format; ndjson: one a line", "content": content}}
    }


def lines_doc() -> dict[str, Any]:
    """The `openapi_extra` of a call that answers with lines of JSON."""
    content = {FORMATS["ndjson"].media_type: {"schema": {"type": "string"}}}
    return {"responses": {"200": {"description": "events, one a line", "content": content}}}


def quotas_doc() -> dict[str, Any]:
    """The `openapi_extra` of SetQuotas."""
    return json_doc(dict.fromkeys(Limits.model_fields, LIMIT), optional=True)


def create_doc() -> dict[str, Any]:
    """The `openapi_extra` of CreateTenant."""
    kept: dict[str, Any] = {"type": ["boolean", "null"], "description": "keep index entries, for restores"}
    members = {
        "tenant_id": {"type": "string"},
        "retention_ms": RETENTION,
        "kms_key_id": KMS_KEY_ID,
        "index_keys": kept,
        "kind": {"type": ["string", "null"], "enum": ["tidb", "raw", None], "description": "raw: RawKV"},
    }
    return json_doc(members, required=["tenant_id"])


def source_doc() -> dict[str, Any]:
    """The `openapi_extra` of AddSource."""
    url = {"type": "string", "maxLength": URL_MAX, "example": "s3://backups/log"}
    snapshot = {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"type": "string", "enum": ["br-full", "none"]}, "url": url},
        "additionalProperties": False,
        "description": "where the schema comes from: a full backup, or (none) the schema_snap that was pushed",
    }
    kind = {"type": "string", "enum": ["log-backup"]}
    return json_doc({"kind": kind, "url": url, "snapshot": snapshot}, required=["kind", "url"])


def backfill_doc() -> dict[str, Any]:
    """The `openapi_extra` of StartBackfill."""
    text = {"type": "string", "maxLength": URL_MAX}
    source = {
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {"type": "string", "enum": ["br-full", "push", "sql"]},
            "url": {**text, "description": "of a full backup of BR (br-full)", "example": "s3://backups/full"},
            "dsn_file": {**text, "description": "of kind sql: a file of the ingest service with a mysql:// URL"},
            "threads": {"type": "integer", "minimum": 1, "maximum": 64},
        },
        "additionalProperties": False,
        "description": "br-full: a full backup of BR; push: another program writes the plan and the chunks",
    }
    tables = {
        "type": "array",
        "minItems": 1,
        "maxItems": TABLES_MAX,
        "items": {"type": "string", "maxLength": PATTERN_MAX},
        "description": "patterns database.table, in which * and ? are wildcards",
        "example": ["shop.*"],
    }
    return json_doc({"source": source, "tables": tables})


def deletion_doc() -> dict[str, Any]:
    """The `openapi_extra` of DeleteTenant."""
    grace = {"type": "string", "pattern": "^[0-9]+$", "description": "milliseconds", "example": str(DELETE_GRACE_MS)}
    confirm = {"type": "string", "description": "the tenant_id once more", "example": "acme"}
    return json_doc({"confirm": confirm, "grace_ms": grace}, required=["confirm"])


def json_doc(
    members: dict[str, dict[str, Any]], *, optional: bool = False, required: list[str] | None = None
) -> dict[str, Any]:
    """The `openapi_extra` of a call with a JSON body of these members. `required` lists the required ones (default:
    all, or with `optional` none)."""
    required = ([] if optional else list(members)) if required is None else required
    schema = {"type": "object", "required": required, "properties": members, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def body_doc(*members: str) -> dict[str, Any]:
    """The `openapi_extra` of a call with a JSON body of these members, all strings and all required."""
    properties: dict[str, dict[str, Any]] = {
        name: _STAMP if name in ("ts", "store_id") else {"type": "string"} for name in members
    }
    return json_doc(properties)
