"""Settings of the API server, which are read from environment variables `TISTREAM_API__…`."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tistream.service.settings import ServiceSettings, settings_config


class OidcSettings(BaseModel):
    """The OpenID Connect issuer whose JSON Web Tokens are accepted, beside TiStream's own tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str | None = Field(
        default=None, description="`iss` of accepted JSON Web Tokens; without it none are accepted"
    )
    audience: str | None = Field(default=None, description="required `aud` of JSON Web Tokens")
    jwks_url: str | None = Field(default=None, description="https:// URL of the issuer's keys; or use JWKS_FILE")
    jwks_file: Path | None = Field(default=None, description="file with the issuer's keys, read again periodically")
    jwks_ca_file: Path | None = Field(
        default=None, description="authority of JWKS_URL's certificate; default: the public ones"
    )
    claim: str = Field(default="tistream", min_length=1, description="claim that has the grants, as JSON")

    @model_validator(mode="after")
    def _whole_or_nothing(self) -> Self:
        if self.issuer is None and any((self.audience, self.jwks_url, self.jwks_file)):
            raise ValueError("OIDC__ISSUER is missing: set it, or none of the settings of OIDC")
        if self.issuer is not None and (not self.audience or (self.jwks_url is None) == (self.jwks_file is None)):
            raise ValueError("OIDC__ISSUER needs OIDC__AUDIENCE, and exactly one of OIDC__JWKS_URL and OIDC__JWKS_FILE")
        if self.jwks_ca_file is not None and self.jwks_url is None:
            raise ValueError(
                "OIDC__JWKS_CA_FILE is set without OIDC__JWKS_URL, whose certificate it verifies: remove it, or set "
                "the URL"
            )
        if self.jwks_url is not None and not _cannot_be_read_on_the_way(self.jwks_url):
            raise ValueError(
                "OIDC__JWKS_URL must begin with https://, because over http:// the keys can be replaced on the way"
            )
        return self


class LimitSettings(BaseModel):
    """The default limits of each tenant at each API server. A tenant's own limits replace them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_second: int = Field(
        default=1_000, ge=0, description="requests of a tenant per second; above: 429; 0: no limit"
    )
    pulls_at_once: int = Field(default=0, ge=0, description="concurrent pulls of a tenant; 0: half of PULLS_MAX")
    served_bytes_per_second: int = Field(
        default=0, ge=0, description="bytes per second that a tenant's pulls send; 0: no limit"
    )
    notifications_per_second: int = Field(
        default=5_000, ge=0, description="files that a tenant announces per second; 0: no limit"
    )


class SignedSettings(BaseModel):
    """URLs that are signed for readers of the object store (docs/adr/0035-signed-ranges.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: int = Field(
        default=300,
        ge=0,
        le=3_600,
        description="how long signed URLs of row groups are valid, also after their reader's token was revoked; 0: "
        "none are signed",
    )
    rows_min: int = Field(
        default=8_192, ge=1, description="a range of time in which a table has fewer rows is pulled instead"
    )
    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^/?#@]+$",
        description="URL of the object store in signed URLs, if readers reach it by another one than this server",
    )


class ApiSettings(ServiceSettings):
    """Settings of the API server."""

    model_config = settings_config("API")

    secrets_public_file: Path | None = Field(
        default=None, description="public key with which secrets of tenants are sealed; without it none are accepted"
    )
    cache_bytes: int = Field(
        default=256 << 20,
        ge=1 << 20,
        description="size of the cache of row groups; decoded rows may use a quarter of it in addition",
    )
    keyed_cache_ms: int = Field(
        default=30_000,
        ge=0,
        le=3_600_000,
        description="how long row groups of tenants with their own KMS key are cached, and may be served after the key "
        "was revoked",
    )
    chunk_rows: int = Field(default=32_768, ge=1, le=1 << 20, description="rows that a pull decodes in one step")
    chunk_bytes: int = Field(
        default=16 << 20, ge=1 << 10, description="compressed bytes that a pull decodes in one step"
    )
    pulls_max: int = Field(
        default=224,
        ge=1,
        le=240,
        description="concurrent pulls; above: 429. PULL_MEMORY_BYTES limits their memory",
    )
    pull_memory_bytes: int = Field(
        default=0,
        ge=0,
        description="memory of all pulls, 64 MiB for each that works or is not read; above it, pulls wait and get 429 "
        "after 5 s. A tenant may use half. 0: half of the memory of the container or machine",
    )
    list_wait_ms: int = Field(default=2_000, ge=0, le=60_000, description="maximum time that a list waits for its ts")
    lag_every_ms: int = Field(
        default=5_000,
        ge=500,
        le=600_000,
        description="interval of samples of each tenant's lag by stage; an hour is kept",
    )
    access_log: bool = Field(default=True, description="log each request with the bytes and rows sent")
    refresh_threads: int = Field(default=4, ge=1, le=64, description="tenants refreshed in parallel")
    refusals_per_second: int = Field(
        default=20,
        ge=0,
        description="rejections (4xx) per second, of one token or else of one address, that are answered at "
        "once; further ones are delayed by up to 3 s; 0: no delay. With AUTH=on",
    )
    auth: Literal["off", "on"] = Field(default="off", description="on: each call requires a token")
    oidc: OidcSettings = OidcSettings()
    limits: LimitSettings = LimitSettings()
    signed: SignedSettings = SignedSettings()


def _cannot_be_read_on_the_way(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        return parts.scheme == "http" and ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
