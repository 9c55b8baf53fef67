"""Reads and writes the rows of tokens. Every function runs inside a transaction of the repository.

A change of the valid tokens raises the version of the token list. Every API server holds all valid tokens, and fetches
them again when the version changes. So the number and size of a tenant's valid tokens are limited, because the tenant's
operator could make any number of them. Only the newest expired and revoked tokens of a tenant are kept.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, or_, select, update

from tistream.errors import AlreadyDiffers, InvalidRequest, LimitReached, UnknownName
from tistream.wire.tokens import Grant, KnownToken, KnownTokens, StoreToken, TokenInfo, limit_groups
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, counter_rows, tables

VALID_MAX = 1_000  # of one tenant, of parts of it, or of one cluster as a whole
ENDED_MAX = 1_000
GRANTS_BYTES_MAX = 32 << 10  # of one token
BYTES_MAX = 1 << 20  # the grants of the valid tokens of one tenant, and those of its expired and revoked ones
_SHOWN = 3
_TOKENS = tables.tokens


def known(connection: Connection, now_ms: ColumnElement[int]) -> KnownTokens:
    """The valid tokens, and the version of the token list."""
    version = counter_rows.read(connection, tables.TOKENS_VERSION)
    rows = connection.execute(select(_TOKENS).where(_valid(now_ms)).order_by(_TOKENS.c.token_id))
    return KnownTokens(
        version=version,
        tokens=[
            KnownToken(
                token_id=row.token_id, secret_hash=row.hash, grants=_grants(row.grants), expires_ms=row.expires_ms
            )
            for row in rows
        ],
    )


def every(connection: Connection) -> tuple[TokenInfo, ...]:
    """All tokens, the oldest first."""
    return tuple(map(_info, connection.execute(select(_TOKENS).order_by(_TOKENS.c.created_ms, _TOKENS.c.token_id))))


def store(connection: Connection, token: StoreToken, now_ms: ColumnElement[int]) -> TokenInfo:
    """Insert a token, unless it exists. Raises AlreadyDiffers if it exists with another secret, LimitReached if the
    tenant has too many valid tokens, and InvalidRequest if its grants are too long."""
    found = _find(connection, token.token_id)
    if found is not None:
        if found.hash != token.secret_hash:
            raise AlreadyDiffers(
                f"token {token.token_id} exists with another secret: create a new one (`tistream token new`)"
            )
        return _info(found)
    grants = json.dumps([grant.model_dump() for grant in token.grants])
    if len(grants) > GRANTS_BYTES_MAX:
        raise InvalidRequest(
            f"its grants are {len(grants)} bytes of JSON, more than {GRANTS_BYTES_MAX}: make several tokens, or grant "
            "a whole database or tenant"
        )
    _make_room(connection, token.grants, len(grants), now_ms)
    values = {
        "token_id": token.token_id,
        "hash": token.secret_hash,
        "label": token.label,
        "grants": grants,
        "created_ms": now_ms,
        "expires_ms": token.expires_ms,
    }
    connection.execute(insert(_TOKENS).values(**values))
    made = _changed(connection, token.token_id)
    for subject in shown.token(made):
        audit_log.note(connection, now_ms, subject, None, shown.of_token(made))
    return made


def revoke(connection: Connection, token_id: str, now_ms: ColumnElement[int]) -> TokenInfo:
    """Mark a token as revoked, unless it is. Raises UnknownName."""
    found = _find(connection, token_id)
    if found is None:
        raise UnknownName(f"there is no token {token_id}: `tistream token list` has the ids")
    if found.revoked_ms is not None:
        return _info(found)
    connection.execute(update(_TOKENS).where(_TOKENS.c.token_id == token_id).values(revoked_ms=now_ms))
    was, became = _info(found), _changed(connection, token_id)
    for subject in shown.token(became):
        audit_log.note(connection, now_ms, subject, shown.of_token(was), shown.of_token(became))
    return became


def _make_room(connection: Connection, grants: list[Grant], length: int, now_ms: ColumnElement[int]) -> None:
    """Delete the oldest expired and revoked tokens of the tenant above the limits, so that there is room for one more
    token. Raises LimitReached if too many are valid. Tokens for the whole platform have no limit."""
    of = limit_groups(grants)
    if of is None:
        return
    columns = (_TOKENS.c.token_id, _TOKENS.c.grants, _valid(now_ms).label("valid"))
    newest_first = select(*columns).order_by(_TOKENS.c.created_ms.desc(), _TOKENS.c.token_id)
    own = [row for row in connection.execute(newest_first) if limit_groups(_grants(row.grants)) == of]
    valid = [row for row in own if row.valid]
    whose = ", ".join(sorted(of)[:_SHOWN])
    if len(valid) >= VALID_MAX:
        raise LimitReached(f"{VALID_MAX} tokens of {whose} are valid, which is the maximum: revoke some first")
    if sum(len(row.grants) for row in valid) + length > BYTES_MAX:
        raise LimitReached(
            f"the grants of the valid tokens of {whose} would exceed {BYTES_MAX} bytes, the maximum: revoke some first"
        )
    ended = [row for row in own if not row.valid]
    held = itertools.accumulate(len(row.grants) for row in ended)
    kept = sum(length <= BYTES_MAX for length in itertools.islice(held, ENDED_MAX))
    if too_many := [row.token_id for row in ended[kept:]]:
        connection.execute(delete(_TOKENS).where(_TOKENS.c.token_id.in_(too_many)))


def _valid(now_ms: ColumnElement[int]) -> ColumnElement[bool]:
    return and_(_TOKENS.c.revoked_ms.is_(None), or_(_TOKENS.c.expires_ms.is_(None), _TOKENS.c.expires_ms > now_ms))


def _changed(connection: Connection, token_id: str) -> TokenInfo:
    counter_rows.raise_by(connection, tables.TOKENS_VERSION, 1)
    return _info(connection.execute(select(_TOKENS).where(_TOKENS.c.token_id == token_id)).one())


def _find(connection: Connection, token_id: str) -> Row[Any] | None:
    return connection.execute(select(_TOKENS).where(_TOKENS.c.token_id == token_id)).one_or_none()


def _grants(text: str) -> list[Grant]:
    return [Grant.model_validate(one) for one in json.loads(text)]


def _info(row: Row[Any]) -> TokenInfo:
    return TokenInfo(
        token_id=row.token_id,
        label=row.label,
        grants=_grants(row.grants),
        created_ms=row.created_ms,
        expires_ms=row.expires_ms,
        revoked_ms=row.revoked_ms,
    )
