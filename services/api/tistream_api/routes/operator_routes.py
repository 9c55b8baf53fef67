"""HTTP routes for operators: nodes, tasks, the owner. They are forwarded to the meta server, because only the API
server has a public port."""

from __future__ import annotations

import re

from fastapi import APIRouter
from fastapi.responses import Response

from tistream.errors import UnknownName
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import Accepted, Children, NodeList, OwnerInfo, TaskInfoList
from tistream_api.admission.gate import OPERATE_PLATFORM
from tistream_api.request.bodies import Body
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_TASK = re.compile(r"[0-9]{1,19}")


def _safe(form: re.Pattern[str], segment: str) -> str:
    """Decode a name that becomes part of a path at the meta server, and return it. Raises UnknownName for a name of
    another form, such as `..`, which could lead to another path."""
    name = name_of(segment)
    if not form.fullmatch(name):
        raise UnknownName(
            f"there is no {name[:80]!r}: a name or id has the form {form.pattern}; ListNodes and ListTasks have them"
        )
    return name


def build_operator_router(meta: MetaClient) -> APIRouter:
    """Build the router of `tistream node`, `tistream task` and `tistream owner`."""
    router = APIRouter(tags=["operate"])

    def forward(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.get(
        "/v1/nodes",
        operation_id="ListNodes",
        response_model=NodeList,
        responses=openapi.OPERATE_PROBLEMS,
    )
    @OPERATE_PLATFORM
    def list_nodes() -> Response:
        """All processes except the meta servers, and whether each is alive, suspect, lost or draining."""
        return forward("GET", "/v1/nodes")

    @router.post(
        "/v1/nodes/{node_id}/drain",
        operation_id="DrainNode",
        response_model=Accepted,
        status_code=202,
        responses=openapi.OPERATE_PROBLEMS,
        openapi_extra=openapi.json_doc({"draining": {"type": "boolean"}}),
    )
    @OPERATE_PLATFORM
    def drain_node(node_id: str, body: Body) -> Response:
        """Move all tasks and stores off a node, and assign none to it: `{"draining": true}`. With false, assign work to
        it again."""
        return forward("POST", f"/v1/nodes/{_safe(_NODE, node_id)}/drain", body)

    @router.get(
        "/v1/tasks",
        operation_id="ListTasks",
        response_model=TaskInfoList,
        responses=openapi.OPERATE_PROBLEMS,
    )
    @OPERATE_PLATFORM
    def list_tasks() -> Response:
        """All tasks: the sorter of each, its epoch and its phase."""
        return forward("GET", "/v1/tasks")

    @router.post(
        "/v1/tasks/{task_id}/move",
        operation_id="MoveTask",
        response_model=Accepted,
        status_code=202,
        responses=openapi.OPERATE_PROBLEMS,
        openapi_extra=openapi.json_doc({"node_id": {"type": "string"}}),
    )
    @OPERATE_PLATFORM
    def move_task(task_id: str, body: Body) -> Response:
        """Move a task to another sorter, once that sorter has prepared for it: `{"node_id": "sorter-2"}`."""
        return forward("POST", f"/v1/tasks/{_safe(_TASK, task_id)}/move", body)

    @router.post(
        "/v1/tasks/{task_id}/split",
        operation_id="SplitTask",
        response_model=Children,
        status_code=202,
        responses=openapi.OPERATE_PROBLEMS,
        openapi_extra=openapi.json_doc({"key": {"type": ["string", "null"]}}, optional=True),
    )
    @OPERATE_PLATFORM
    def split_task(task_id: str, body: Body) -> Response:
        """Split a task in two: `{"key": "7480…"}` (hexadecimal), or `{}` to split it at the key that halves the
        load."""
        return forward("POST", f"/v1/tasks/{_safe(_TASK, task_id)}/split", body)

    @router.post(
        "/v1/tasks/{task_id}/merge",
        operation_id="MergeTasks",
        response_model=Children,
        status_code=202,
        responses=openapi.OPERATE_PROBLEMS,
        openapi_extra=openapi.json_doc({"neighbour": {"type": "integer"}}),
    )
    @OPERATE_PLATFORM
    def merge_tasks(task_id: str, body: Body) -> Response:
        """Merge a task with a neighbour: `{"neighbour": 4}`."""
        return forward("POST", f"/v1/tasks/{_safe(_TASK, task_id)}/merge", body)

    @router.get(
        "/v1/owner",
        operation_id="Owner",
        response_model=OwnerInfo,
        responses=openapi.OPERATE_PROBLEMS,
    )
    @OPERATE_PLATFORM
    def owner() -> Response:
        """The owner, which is the elected meta server, and its election number."""
        return forward("GET", "/v1/owner")

    return router
