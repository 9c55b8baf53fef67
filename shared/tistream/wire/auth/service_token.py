"""The token of each call between services: an HS256 JWT (RFC 7519), signed with a key that all services share.

Pure. Any process that has the key counts as a service. A token is valid for a minute, so an intercepted one soon
becomes useless. Only one algorithm is allowed, so a JWT header can have only one value; a token with another header is
rejected before any part of it is parsed.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import jwt
from jwt.types import Options

ALGORITHM = "HS256"
KEY_BYTES_MIN = 32  # RFC 7518 3.2: no key shorter than the hash
LIFE_S = 60
SKEW_S = 30  # allowed difference between the clocks of two machines
TEXT_MAX = 2_048


class BadKeys(ValueError):
    """Raised if a text contains no valid keys. The message does not contain the keys."""


class BadToken(ValueError):
    """Raised if a token is not valid. The message has the reason."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The signer of a token: its node's name, and its service."""

    node: str
    role: str


def parse_keys(text: str) -> tuple[bytes, ...]:
    """Parse a key file: one key per line, base64; empty lines and lines that begin with # are ignored. The first key
    signs, and all keys verify. Raises BadKeys."""
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        try:
            key = base64.b64decode(written, validate=True)
        except (binascii.Error, ValueError):
            raise BadKeys(f"line {number} is not base64") from None
        if len(key) < KEY_BYTES_MIN:
            raise BadKeys(f"the key of line {number} has {len(key)} bytes, and needs {KEY_BYTES_MIN}")
        keys.append(key)
    if not keys:
        raise BadKeys("it holds no key: write one key a line")
    return tuple(keys)


def sign(key: bytes, caller: Caller, now_s: int) -> str:
    """Create a token of `caller`, signed with `key`. It is valid for LIFE_S seconds from `now_s` (Unix time) on."""
    claims = {"iss": caller.node, "sub": caller.role, "iat": now_s, "exp": now_s + LIFE_S}
    return jwt.encode(claims, key, algorithm=ALGORITHM)


def verify(token: str, keys: Sequence[bytes], now_s: int) -> Caller:
    """Verify that one of the keys has signed the token, and that it is valid at `now_s` (Unix time in seconds). Returns
    the signer. Raises BadToken if it is not."""
    if len(token) > TEXT_MAX or token.partition(".")[0] != _HEADER:
        raise BadToken("no token of a service")
    if not _SIGNATURE.fullmatch(token.rpartition(".")[2]):  # PyJWT would also accept a signature with base64 padding
        raise BadToken("signed with a key that is not known here")
    claims = _claims(token, tuple(keys))
    try:
        begin_s, end_s, caller = int(claims["iat"]), int(claims["exp"]), Caller(str(claims["iss"]), str(claims["sub"]))
    except (ValueError, KeyError, TypeError):
        raise BadToken("its claims are not those of a service") from None
    if now_s >= end_s + SKEW_S:
        raise BadToken("expired; are the clocks right?")
    if now_s < begin_s - SKEW_S or end_s - begin_s > LIFE_S:
        raise BadToken("of the future; are the clocks right?")
    return caller


@lru_cache(maxsize=1_024)
def _claims(token: str, keys: tuple[bytes, ...]) -> Mapping[str, Any]:
    """Verify that one of the keys has signed a token, and return the token's claims. Times are not checked here,
    because PyJWT would read the machine's clock, and because the result is cached: a service sends the same token with
    each call for 20 s. Raises BadToken."""
    for key in keys:
        try:
            return dict(jwt.decode(token, key, algorithms=[ALGORITHM], options=_SIGNATURE_ONLY))
        except jwt.InvalidSignatureError:
            continue
        except jwt.InvalidTokenError:
            raise BadToken("its claims are not those of a service") from None
    raise BadToken("signed with a key that is not known here")


_HEADER = jwt.encode({}, bytes(KEY_BYTES_MIN), algorithm=ALGORITHM).partition(".")[0]
_SIGNATURE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # 32 bytes in base64
_SIGNATURE_ONLY: Final = Options(
    verify_exp=False, verify_nbf=False, verify_iat=False, verify_aud=False, verify_iss=False, verify_sub=False
)
