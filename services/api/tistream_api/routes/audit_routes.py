"""The route of the audit log, which is forwarded to the meta server. It requires the grant `operate` on the platform,
because entries name every tenant and the addresses of its operators."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from tistream.wire.audit import AuditPage
from tistream.wire.clients.meta_client import MetaClient
from tistream_api.admission.gate import OPERATE_PLATFORM
from tistream_api.request.queries import AuditPart
from tistream_api.routes import openapi


def build_audit_router(meta: MetaClient) -> APIRouter:
    """Build the router of the audit log, which `tistream audit` reads."""
    router = APIRouter(tags=["operate"])

    @router.get(
        "/v1/audit",
        operation_id="AuditLog",
        response_model=AuditPage,
        responses=openapi.OPERATE_PROBLEMS,
    )
    @OPERATE_PLATFORM
    def audit_log(query: AuditPart) -> Response:
        """Entries of the audit log, oldest first: the first ones above `after`, or the newest ones. Each has a change,
        its actor and address, and the values before and after."""
        answer = meta.request("GET", f"/v1/audit?{query.text()}")
        return Response(answer.content, answer.status_code, media_type="application/json")

    return router
