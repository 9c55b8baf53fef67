"""The audit log: what the meta server answers, behind the gate. For who operates the platform: entries tell of every
tenant, and from which addresses its operators come."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tistream.wire.meta_client import MetaClient
from tistream_api.admission.gate import OPERATE_PLATFORM
from tistream_api.request import params
from tistream_api.routes import openapi


def build_audit_router(meta: MetaClient) -> APIRouter:
    """The route of `tistream audit`."""
    router = APIRouter(tags=["operate"])

    @router.get(
        "/v1/audit",
        operation_id="AuditLog",
        responses=openapi.OPERATE_PROBLEMS,
        openapi_extra=OPERATE_PLATFORM.declared(openapi.audit_doc()),
    )
    def audit_log(request: Request) -> Response:
        """What was changed, by whom, from where, what from and what to: the first entries above `after`, or the
        newest; the oldest of them first."""
        asked = urlencode(params.parse_audit(request.scope["query_string"]))
        answer = meta.request("GET", f"/v1/audit?{asked}")
        return Response(answer.content, answer.status_code, media_type="application/json")

    return router
