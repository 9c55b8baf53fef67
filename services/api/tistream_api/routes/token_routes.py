"""HTTP routes of tokens. This process generates them, and the meta server stores them. A secret leaves this process
once, in the answer to its creator."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tistream.clock import Clock
from tistream.errors import AuthOff, Forbidden, UnknownName
from tistream.wire.clients.token_client import TokenClient
from tistream.wire.tokens import GRANTS_MAX, MadeToken, NewToken, StoreToken, TokenInfo, TokenList, hash_of, token_text
from tistream_api.admission.gate import OPERATE_OWN, caller_of
from tistream_api.auth.access import may_manage
from tistream_api.auth.callers import Callers
from tistream_api.request.bodies import Body, read
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi

log = logging.getLogger(__name__)

_ACTIONS = {"type": "array", "minItems": 1, "items": {"enum": ["read", "push", "operate", "feed"]}}
_LEVEL = {"type": "string", "default": "*"}
_GRANT = {
    "type": "object",
    "required": ["actions"],
    "properties": {"actions": _ACTIONS, **dict.fromkeys(("cluster", "tenant", "database", "table"), _LEVEL)},
    "additionalProperties": False,
}
_NEW = openapi.json_doc(
    {
        "label": {"type": "string", "maxLength": 128, "pattern": "^(?! *[=+@-])[ -~]*$"},
        "grants": {"type": "array", "minItems": 1, "maxItems": GRANTS_MAX, "items": _GRANT},
        "expires_in_s": {"type": ["integer", "null"], "minimum": 1},
    },
    required=["grants"],
)


def build_token_router(
    tokens: TokenClient, callers: Callers | None, clock: Clock, new_secret: Callable[[], tuple[str, str]]
) -> APIRouter:
    """Build the router of `tistream token`. `new_secret` generates a token's id and secret. `callers`: None if
    authentication is off."""
    router = APIRouter(tags=["token"])

    @router.post(
        "/v1/tokens",
        operation_id="CreateToken",
        response_model=MadeToken,
        status_code=201,
        responses=openapi.TOKEN_PROBLEMS,
        openapi_extra=_NEW,
    )
    @OPERATE_OWN
    def create_token(request: Request, body: Body) -> Response:
        """Create a token. The caller must have the grant operate on everything that the new token grants. The new token
        expires no later than the caller's. Its text is returned only here."""
        if callers is None:
            # Without authentication anyone could create a token that becomes valid when authentication is switched on.
            raise AuthOff(
                "this API server runs with TISTREAM_API__AUTH=off, so it creates no tokens: set it to on, and create "
                "them with the first token (TISTREAM_META__FIRST_TOKEN_FILE; tistream up --auth)"
            )
        wanted, caller = read(NewToken, body), caller_of(request)
        if not may_manage(caller.grants, wanted.grants):
            raise Forbidden(
                "the token does not grant operate of everything that the new one would grant: request fewer grants, "
                "or use a token that has them"
            )
        token_id, secret = new_secret()
        wanted_ms = None if wanted.expires_in_s is None else clock.now_ms() + 1000 * wanted.expires_in_s
        kept = StoreToken(
            token_id=token_id,
            secret_hash=hash_of(secret),
            label=wanted.label,
            grants=wanted.grants,
            expires_ms=_sooner(wanted_ms, caller.expires_ms),
        )
        stored = tokens.store(kept)
        callers.await_token(token_id)
        log.info("token made", extra={"token": token_id, "label": wanted.label, "by": caller.name})
        made = MadeToken(**stored.model_dump(), token=token_text(token_id, secret))
        return Response(made.model_dump_json(), 201, {"Cache-Control": "no-store"}, media_type="application/json")

    @router.get(
        "/v1/tokens",
        operation_id="ListTokens",
        response_model=TokenList,
        responses=openapi.TOKEN_PROBLEMS,
    )
    @OPERATE_OWN
    def list_tokens(request: Request) -> Response:
        """The tokens that the caller could have created, without their secrets."""
        shown = TokenList(tokens=_own(request))
        return Response(shown.model_dump_json(), media_type="application/json")

    @router.delete(
        "/v1/tokens/{token_id}",
        operation_id="RevokeToken",
        response_model=TokenInfo,
        responses=openapi.TOKEN_PROBLEMS,
    )
    @OPERATE_OWN
    def revoke_token(request: Request, token_id: str) -> Response:
        """Revoke a token. It is rejected from now on; revoking it again is not an error."""
        name = name_of(token_id)
        if name not in {token.token_id for token in _own(request)}:
            raise UnknownName(
                "there is no token of this id that the caller's may revoke: ListTokens has those that it may"
            )
        revoked = tokens.revoke(name)
        if callers is not None:
            callers.forget(name)
        log.info("token revoked", extra={"token": name, "by": caller_of(request).name})
        return Response(revoked.model_dump_json(), media_type="application/json")

    def _own(request: Request) -> list[TokenInfo]:
        grants = caller_of(request).grants
        return [token for token in tokens.every().tokens if may_manage(grants, token.grants)]

    return router


def _sooner(wanted_ms: int | None, own_ms: int | None) -> int | None:
    """The expiry of a new token: the requested one or that of the creator's token, whichever is earlier; None if it
    never expires."""
    return min((one for one in (wanted_ms, own_ms) if one is not None), default=None)
