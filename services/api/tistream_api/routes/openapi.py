"""Parameters and answers in the OpenAPI document. params.py parses the parameters, from the raw query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tistream.model.retention import RETENTION_MAX_MS, RETENTION_MIN_MS
from tistream.wire.audit import LIMIT_DEFAULT as AUDIT_LIMIT
from tistream.wire.audit import LIMIT_MAX as AUDIT_LIMIT_MAX
from tistream.wire.limits import QUOTA_MAX, Limits
from tistream.wire.meta import DELETE_GRACE_MS, KMS_KEY_ID_PATTERN
from tistream_api.encode.encoding import FORMATS
from tistream_api.request.params import (
    DDL_LIMIT_DEFAULT,
    DDL_LIMIT_MAX,
    EVENTS,
    LAG_MINUTES_MAX,
    LIMIT_DEFAULT,
    LIMIT_MAX,
    WAIT_MS_MAX,
)

_TS = {"type": "string", "pattern": "^[0-9]{1,19}$"}


def _query(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


_PULL = [
    _query("start_ts", _TS, "exclusive; either this or cursor. May lie ahead of resolved_ts, up to the present"),
    _query("cursor", {"type": "string"}, "where an answer ended; either this or start_ts"),
    _query("end_ts", _TS, "inclusive, at least start_ts; give it with each request"),
    _query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
        "row and ddl events in the answer",
    ),
    _query(
        "wait_ms",
        {"type": "integer", "minimum": 0, "maximum": WAIT_MS_MAX, "default": 0},
        "long poll: wait that long for an event",
    ),
    _query("follow", {"type": "boolean", "default": False}, "endless stream; not with limit, end_ts or parquet"),
    _query(
        "format",
        {"type": "string", "enum": list(FORMATS), "default": next(iter(FORMATS))},
        "of the answer: lines of JSON, Arrow IPC streams (see events), or a tar archive of Parquet files",
    ),
    _query(
        "events",
        {"type": "string", "enum": list(EVENTS)},
        "which events the answer has; default: all. format=arrow has no default: rows is one IPC stream with one "
        "schema (of PullTable alone; a page ends before the schema changes), ddl is one IPC stream, all is several "
        "IPC streams one after the other",
    ),
]
_PULL.append(
    _query(
        "squash",
        {"type": "boolean", "default": False},
        "net changes between start_ts and end_ts: each key once. Not with follow and wait_ms; a cursor goes with "
        "squash=true until a `resolved`, and then without it",
    )
)
_PULL.append(
    _query(
        "snapshot",
        {"type": "string", "pattern": "^(now|[0-9]+|[0-9]{4}-.*)$"},
        "rows as of this time first (now, a TSO, an RFC 3339 time); the cursor after them continues with every change "
        "above. 409 for a table whose rows are not known then: run a backfill",
    )
)
_LIST = [_query("ts", _TS, "as of this time; default: the newest")]
_HEX = {"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"}
_COVERAGE = [
    _query("start_key", _HEX, "hexadecimal, inclusive; empty: from the first key"),
    _query("end_key", _HEX, "hexadecimal, exclusive; empty: to the last key"),
]
_LAG = [
    _query(
        "minutes",
        {"type": "integer", "minimum": 1, "maximum": LAG_MINUTES_MAX, "default": LAG_MINUTES_MAX},
        "how far back",
    ),
]
_DDL = [
    _query("before_ts", _TS, "exclusive; default: the newest"),
    _query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": DDL_LIMIT_MAX, "default": DDL_LIMIT_DEFAULT},
        "events in the answer",
    ),
]

_MS = {"type": "string", "pattern": "^[0-9]{1,16}$"}
_USAGE = [
    _query("from", _MS, "milliseconds since the Unix epoch, inclusive; default: a day before `to`"),
    _query("to", _MS, "milliseconds since the Unix epoch, exclusive; default: the end of the present hour"),
]
_AUDIT = [
    _query("after", {"type": "integer", "minimum": 0}, "the entries above this seq; default: the newest ones"),
    _query("limit", {"type": "integer", "minimum": 1, "maximum": AUDIT_LIMIT_MAX, "default": AUDIT_LIMIT}, "how many"),
    _query("cluster_id", {"type": "string"}, "with tenant_id: what is about that tenant alone"),
    _query("tenant_id", {"type": "string"}, "with cluster_id"),
]
LIMIT: dict[str, Any] = {
    "type": ["integer", "null"],
    "minimum": 0,
    "maximum": QUOTA_MAX,
    "description": "null: as the settings have it; 0: as much as it likes",
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
_STAMP = {"type": "string", "pattern": "^[0-9]+$"}
_PROBLEM = {
    "application/problem+json": {
        "schema": {
            "type": "object",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": {"type": "string"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "detail": {"type": "string"},
            },
        }
    }
}
_TOLD = {
    400: "a bad parameter, or a bad body",
    401: "no token, or one that is not valid",
    403: "the token does not grant this; that says nothing of what is there",
    404: "an unknown name",
    409: "it is there, and differs",
    410: "the ts lies below the earliest one kept; earliest_ts says which",
    422: "a row that no schema can decode stands next; table, key and reason say which",
    429: "more than a limit allows; Retry-After",
    503: "cannot be answered yet; Retry-After",
}

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """Answers other than success. The key `default` keeps FastAPI from adding an answer that no call gives."""
    every = sorted({*statuses, 401, 403, 429})  # the gate's answers
    told: Responses = {status: {"description": _TOLD[status], "content": _PROBLEM} for status in every}
    return {**told, "default": {"description": "any other problem", "content": _PROBLEM}}


PULL_PROBLEMS = problems(400, 404, 410, 422, 429, 503)
POINT_PROBLEMS = problems(400, 404, 409, 410, 422, 429, 503)
LIST_PROBLEMS = problems(400, 404, 410, 503)
TENANT_PROBLEMS = problems(400, 404, 503)
CREATE_PROBLEMS = problems(400, 409, 503)
NOTIFY_PROBLEMS = problems(400, 503)
OPERATE_PROBLEMS = problems(400, 404, 503)
TOKEN_PROBLEMS = problems(400, 404, 409, 503)


def pull_doc() -> dict[str, Any]:
    """openapi_extra of the three pulls."""
    text, bytes_ = {"schema": {"type": "string"}}, {"schema": {"type": "string", "format": "binary"}}
    content = {form.media_type: text if name == "ndjson" else bytes_ for name, form in FORMATS.items()}
    events = {"description": "events in the format asked for; ndjson: one a line", "content": content}
    return {"parameters": _PULL, "responses": {"200": events}}


def events_doc() -> dict[str, Any]:
    """openapi_extra of a call that answers with events in the format asked for, and whose parameters are a model."""
    return {"responses": pull_doc()["responses"]}


def rows_doc(media_types: Mapping[str, str]) -> dict[str, Any]:
    """openapi_extra of ListRows. `media_types` by format."""
    text, bytes_ = {"schema": {"type": "string"}}, {"schema": {"type": "string", "format": "binary"}}
    content = {media_type: text if name == "ndjson" else bytes_ for name, media_type in media_types.items()}
    return {
        "responses": {"200": {"description": "rows in the format asked for; ndjson: one a line", "content": content}}
    }


def lines_doc() -> dict[str, Any]:
    """openapi_extra of a call that answers with lines of JSON."""
    content = {FORMATS["ndjson"].media_type: {"schema": {"type": "string"}}}
    return {"responses": {"200": {"description": "events, one a line", "content": content}}}


def list_doc() -> dict[str, Any]:
    """openapi_extra of the two lists."""
    return {"parameters": _LIST}


def coverage_doc() -> dict[str, Any]:
    """openapi_extra of coverage."""
    return {"parameters": _COVERAGE}


def lag_doc() -> dict[str, Any]:
    """openapi_extra of TenantLag."""
    return {"parameters": _LAG}


def ddl_doc() -> dict[str, Any]:
    """openapi_extra of DdlHistory."""
    return {"parameters": _DDL}


def usage_doc() -> dict[str, Any]:
    """openapi_extra of usage."""
    return {"parameters": _USAGE}


def audit_doc() -> dict[str, Any]:
    """openapi_extra of AuditLog."""
    return {"parameters": _AUDIT}


def quotas_doc() -> dict[str, Any]:
    """openapi_extra of SetQuotas."""
    return json_doc(dict.fromkeys(Limits.model_fields, LIMIT), optional=True)


def create_doc() -> dict[str, Any]:
    """openapi_extra of CreateTenant."""
    kept: dict[str, Any] = {"type": ["boolean", "null"], "description": "keep index entries, for restores"}
    members = {
        "tenant_id": {"type": "string"},
        "retention_ms": RETENTION,
        "kms_key_id": KMS_KEY_ID,
        "index_keys": kept,
    }
    return json_doc(members, required=["tenant_id"])


def deletion_doc() -> dict[str, Any]:
    """openapi_extra of DeleteTenant."""
    grace = {"type": "string", "pattern": "^[0-9]+$", "description": "milliseconds", "example": str(DELETE_GRACE_MS)}
    confirm = {"type": "string", "description": "the tenant_id once more", "example": "acme"}
    return json_doc({"confirm": confirm, "grace_ms": grace}, required=["confirm"])


def json_doc(
    members: dict[str, dict[str, Any]], *, optional: bool = False, required: list[str] | None = None
) -> dict[str, Any]:
    """openapi_extra of a call with a JSON body of these members. `required` lists the required ones (default:
    all, or with `optional` none)."""
    required = ([] if optional else list(members)) if required is None else required
    schema = {"type": "object", "required": required, "properties": members, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def body_doc(*members: str) -> dict[str, Any]:
    """openapi_extra of a call with a JSON body of these members, all strings and all required."""
    properties: dict[str, dict[str, Any]] = {
        name: _STAMP if name in ("ts", "store_id") else {"type": "string"} for name in members
    }
    return json_doc(properties)
