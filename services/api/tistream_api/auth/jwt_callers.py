"""Authenticates callers by JSON Web Tokens of one OpenID Connect issuer. Their grants are in a claim, as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import jwt
from pydantic import TypeAdapter, ValidationError

from tistream.clock import Clock
from tistream.errors import Unavailable
from tistream.wire.tokens import GRANTS_MAX, Grant
from tistream_api.settings import OidcSettings

log = logging.getLogger(__name__)

# With a symmetric algorithm, any holder of a verification key can also sign; `none` signs nothing.
ALGORITHMS = ("RS256", "ES256", "EdDSA")
LEEWAY_MS = 30_000  # allowed difference between clocks
REFRESH_MS = 300_000
REFRESH_LEAST_MS = 10_000  # between two reads of the keys, even if tokens name unknown keys
_GRANTS = TypeAdapter(list[Grant])
# Checked below, by our own clock.
_NOT_HERE: dict[str, bool] = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}


class InvalidJwt(Exception):
    """Raised if the JSON Web Token is not valid. The text says why."""


class JwtCallers:
    """Authenticates JSON Web Tokens of one issuer. Thread-safe. A background loop calls `refresh`. `read_keys` reads
    the issuer's key set (RFC 7517)."""

    def __init__(self, settings: OidcSettings, read_keys: Callable[[], bytes], clock: Clock) -> None:
        self._settings, self._read_keys, self._clock = settings, read_keys, clock
        self._keys: Mapping[str, jwt.PyJWK] | None = None
        self._tried_ms = -REFRESH_MS
        self._wanted = False  # a token named an unknown key, or did not match its key

    def refresh(self) -> None:
        """Loop body: read the issuer's keys, if that is due. Raises Unavailable if they cannot be read, and ValueError
        if what was read is not a key set."""
        now_ms = self._clock.monotonic_ms()
        passed_ms = now_ms - self._tried_ms
        if passed_ms < REFRESH_LEAST_MS or (passed_ms < REFRESH_MS and self._keys is not None and not self._wanted):
            return
        self._tried_ms = now_ms
        self._wanted = False
        self._keys = keys_of(self._read_keys())

    def of(self, text: str, now_ms: int) -> tuple[str, tuple[Grant, ...], int]:
        """Verify a token. Returns (name, grants, expiry) of its bearer; the expiry, in Unix ms, includes LEEWAY_MS.
        Raises InvalidJwt, and Unavailable before keys were read. `now_ms`: Unix ms."""
        claims = self._claims(text)
        expires_ms = _stamp_ms(claims, "exp")
        if expires_ms is None or now_ms >= expires_ms + LEEWAY_MS:
            raise InvalidJwt(
                f"claim exp is {claims['exp']}, and this server's clock says {now_ms // 1000}: the token has expired"
            )
        not_before_ms = _stamp_ms(claims, "nbf")
        if not_before_ms is not None and now_ms < not_before_ms - LEEWAY_MS:
            raise InvalidJwt(
                f"claim nbf is {claims['nbf']}, and this server's clock says {now_ms // 1000}: compare the clocks"
            )
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise InvalidJwt(
                "claim sub is missing or empty: the issuer must set it"
            )  # otherwise all such callers would share one name and one rate limit
        return f"subject {subject[:80]}", self._grants(claims), expires_ms + LEEWAY_MS

    def _claims(self, text: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(text)
        except jwt.PyJWTError as error:
            raise InvalidJwt(str(error)) from error
        key = self._key(header.get("kid"))
        if header.get("alg") not in ALGORITHMS or header["alg"] != key.algorithm_name:
            raise InvalidJwt(
                f"algorithm {header.get('alg')!r} is not that of the key, {key.algorithm_name}, or not one of "
                f"{', '.join(ALGORITHMS)}"
            )
        required = {"require": ["exp", "iss", "aud"], **_NOT_HERE}
        try:
            claims: dict[str, Any] = jwt.decode(
                text,
                key,
                algorithms=[key.algorithm_name],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options=required,  # type: ignore[arg-type]
            )
        except jwt.InvalidSignatureError as error:
            self._wanted = True  # an issuer may reuse a key's name
            raise InvalidJwt(str(error)) from error
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise InvalidJwt(str(error)) from error
        return claims

    def _key(self, kid: object) -> jwt.PyJWK:
        keys = self._keys
        if keys is None:
            raise Unavailable(
                f"the keys of issuer {self._settings.issuer} have not been read yet: retry in "
                f"{REFRESH_LEAST_MS // 1000} s; if it stays, check TISTREAM_API__OIDC__JWKS_URL or JWKS_FILE"
            )
        found = keys.get(kid) if isinstance(kid, str) else None
        if found is None:
            self._wanted = True
            raise InvalidJwt(f"the issuer's key set has no key {str(kid)[:80]!r} (header kid)")
        return found

    def _grants(self, claims: Mapping[str, Any]) -> tuple[Grant, ...]:
        claimed = claims.get(self._settings.claim, [])
        try:
            grants = _GRANTS.validate_json(claimed) if isinstance(claimed, str) else _GRANTS.validate_python(claimed)
        except ValidationError as error:
            raise InvalidJwt(
                f"claim {self._settings.claim} has {error.error_count()} mistakes: it must be a list of grants"
            ) from error
        return tuple(grants[:GRANTS_MAX])


def keys_of(document: bytes) -> dict[str, jwt.PyJWK]:
    """The signing keys of a key set that use an allowed algorithm, by key id. Raises ValueError if the document is
    malformed."""
    try:
        claimed = json.loads(document)["keys"]
        entries = [entry for entry in claimed if isinstance(entry.get("kid"), str) and entry.get("use", "sig") == "sig"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError("the document at JWKS_URL or in JWKS_FILE is not a key set (RFC 7517)") from error
    found = {}
    for entry in entries:
        try:
            key = jwt.PyJWK(entry)
        except jwt.PyJWTError as error:
            log.warning("a key of the issuer is not understood", extra={"kid": entry["kid"], "error": str(error)})
            continue
        if key.algorithm_name in ALGORITHMS:
            found[entry["kid"]] = key
    return found


def _stamp_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise InvalidJwt(f"claim {name} is not a time in Unix seconds")
    return int(value * 1000)
