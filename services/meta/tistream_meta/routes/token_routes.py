"""HTTP routes of tokens. Requests to `/v1/tokens` come through the API server, which has authenticated the caller."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from tistream.wire.tokens import KnownTokens, StoreToken, TokenInfo, TokenList
from tistream_meta.routes.audit_routes import AuditedRoute
from tistream_meta.routes.forwarding import OwnersRoute
from tistream_meta.tenants.token_board import TokenBoard

router = APIRouter(route_class=AuditedRoute)
of_owner = APIRouter(route_class=OwnersRoute)

TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


def _board(request: Request) -> TokenBoard:
    board: TokenBoard = request.app.state.tokens
    return board


@of_owner.post("/v1/tokens", status_code=201, operation_id="CreateToken")
def store_token(request: Request, body: StoreToken) -> TokenInfo:
    """Store a token that the API server has made. Idempotent."""
    return _board(request).store(body)


@router.get("/v1/tokens", operation_id="ListTokens")
def list_tokens(request: Request) -> TokenList:
    """The valid tokens and the newest of the expired and revoked ones, the oldest first."""
    return TokenList(tokens=list(_board(request).every()))


@of_owner.delete("/v1/tokens/{token_id}", operation_id="RevokeToken")
def revoke_token(request: Request, token_id: TokenId) -> TokenInfo:
    """Revoke a token. Idempotent."""
    return _board(request).revoke(token_id)


@router.get("/upcall/v1/tokens", operation_id="KnownTokens")
def known_tokens(
    request: Request, known_version: int = -1, wait_ms: Annotated[int, Query(ge=0, le=60_000)] = 0
) -> KnownTokens:
    """The valid tokens, with hashes and without secrets. Waits up to `wait_ms` while their version is
    `known_version`."""
    return _board(request).wait(known_version, wait_ms)


router.include_router(of_owner)
