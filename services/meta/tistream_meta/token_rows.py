"""The rows of tokens. Inside a transaction of the repository's. Whatever changes one raises their version."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from tistream.errors import AlreadyDiffers, UnknownName
from tistream.wire.tokens import Grant, KnownToken, KnownTokens, StoreToken, TokenInfo
from tistream_meta import counter_rows, tables

_TOKENS = tables.tokens


def known(connection: Connection) -> KnownTokens:
    """Those that are not revoked, and their version."""
    version = counter_rows.read(connection, tables.TOKENS_VERSION)
    rows = connection.execute(select(_TOKENS).where(_TOKENS.c.revoked_ms.is_(None)).order_by(_TOKENS.c.token_id))
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
    """The oldest first."""
    return tuple(map(_info, connection.execute(select(_TOKENS).order_by(_TOKENS.c.created_ms, _TOKENS.c.token_id))))


def store(connection: Connection, token: StoreToken, now_ms: ColumnElement[int]) -> TokenInfo:
    """Insert it, if it is not there. Raises AlreadyDiffers."""
    found = _find(connection, token.token_id)
    if found is not None:
        if found.hash != token.secret_hash:
            raise AlreadyDiffers(f"token {token.token_id} is there, with another secret")
        return _info(found)
    values = {
        "token_id": token.token_id,
        "hash": token.secret_hash,
        "label": token.label,
        "grants": json.dumps([grant.model_dump() for grant in token.grants]),
        "created_ms": now_ms,
        "expires_ms": token.expires_ms,
    }
    connection.execute(insert(_TOKENS).values(**values))
    return _changed(connection, token.token_id)


def revoke(connection: Connection, token_id: str, now_ms: ColumnElement[int]) -> TokenInfo:
    """Note that it is revoked. Raises UnknownName."""
    found = _find(connection, token_id)
    if found is None:
        raise UnknownName(f"no token {token_id}")
    if found.revoked_ms is not None:
        return _info(found)
    connection.execute(update(_TOKENS).where(_TOKENS.c.token_id == token_id).values(revoked_ms=now_ms))
    return _changed(connection, token_id)


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
