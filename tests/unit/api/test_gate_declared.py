"""Who may call a route is said by the route; where it is not, there is no API server."""

from __future__ import annotations

import pytest
from fastapi import APIRouter, FastAPI

from tistream_api.admission.gate import (
    DECLARED,
    OPERATE_PLATFORM,
    READ_TABLE,
    Access,
    UndeclaredAccess,
    refuse_undeclared,
)
from tistream_api.settings import ApiSettings, OidcSettings


def app_with(router: APIRouter) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)
    app.include_router(router)
    return app


@pytest.mark.parametrize("extra", [None, {"security": []}, READ_TABLE.shown()])
def test_a_route_that_does_not_say_who_may_call_it_is_refused(extra: dict | None) -> None:
    router, inner = APIRouter(), APIRouter()

    @inner.get("/v1/new", openapi_extra=extra)
    def new() -> None:
        """A route."""

    router.include_router(inner)
    app = app_with(router)
    with pytest.raises(UndeclaredAccess, match="/v1/new"):
        refuse_undeclared(app.routes, router.routes)


def test_a_route_beside_the_gate_is_refused_though_it_says_who_may_call_it() -> None:
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.get("/v1/new", include_in_schema=False)
    @OPERATE_PLATFORM
    def new() -> None:
        """A route."""

    with pytest.raises(UndeclaredAccess, match="/v1/new"):
        refuse_undeclared(app.routes, [])


def test_what_is_declared_is_what_is_read() -> None:
    router = APIRouter()
    access = Access(("read", "operate"), "cluster", partly=True)

    @router.get("/v1/new")
    @access
    def new() -> None:
        """A route."""

    refuse_undeclared(app_with(router).routes, router.routes)
    [route] = router.routes
    assert Access.of(route) == access
    assert READ_TABLE.shown()[DECLARED] == {"action": "read", "scope": "table"}


@pytest.mark.parametrize(
    "settings",
    [
        {"audience": "us"},
        {"issuer": "https://i"},
        {"issuer": "https://i", "audience": "us"},
        {"issuer": "https://i", "audience": "us", "jwks_url": "https://i", "jwks_file": "/keys"},
        {"issuer": "https://i", "audience": "us", "jwks_url": "http://i/keys"},
        {"issuer": "https://i", "audience": "us", "jwks_url": "ftp://127.0.0.1/keys"},
        {"issuer": "https://i", "audience": "us", "jwks_file": "/keys", "jwks_ca_file": "/ca"},
    ],
)
def test_an_issuer_that_could_be_anybody_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="OIDC"):
        OidcSettings(**settings)  # type: ignore[arg-type]


def test_without_being_told_there_is_no_authentication_and_with_a_wrong_word_no_server() -> None:
    assert ApiSettings().auth == "off"
    with pytest.raises(ValueError, match="auth"):
        ApiSettings(auth="yes")
