"""Secrets of a tenant. Its changefeeds refer to them by name (docs/changefeeds.md, "Secrets"). No answer contains a
secret's value in plain text."""

from typing import Annotated

from pydantic import Field, SecretStr

from tistream.secrets.references import NAME
from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

VALUE_MAX = 16_384  # large enough for a certificate
SECRETS_MAX = 100  # secrets of a tenant
SecretName = Annotated[str, Field(pattern=f"^{NAME}$")]


class PutSecret(StrictRequest):
    """`PUT …/secrets/{name}`: store a secret. The value is plain text, protected by TLS."""

    value: SecretStr = Field(min_length=1, max_length=VALUE_MAX)


class SealedSecret(StrictRequest):
    """A PutSecret with an encrypted value (tistream.secrets.sealing), as the API server sends it to the meta server."""

    sealed: str = Field(min_length=1, max_length=2 * VALUE_MAX)


class SecretInfo(Wire):
    """A secret: its name, the time at which it was stored, and the changefeeds that refer to it."""

    name: str
    put_ms: str
    used_by: list[str]


class SecretList(Wire):
    """The secrets of a tenant, by name."""

    secrets: list[SecretInfo]


class SealedSecrets(Wire):
    """The answer of `POST /upcall/v1/…/secrets`, for a worker: encrypted secrets by name."""

    sealed: dict[str, str]
