"""Settings of the API server: TISTREAM_API__…"""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tistream.service.settings import ServiceSettings, settings_config


class OidcSettings(BaseModel):
    """The issuer whose JSON Web Tokens are accepted, beside our own tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str | None = Field(default=None, description="`iss` of the JSON Web Tokens that are taken; none: no JWT is")
    audience: str | None = Field(default=None, description="`aud` that they must have")
    jwks_url: str | None = Field(default=None, description="where the issuer's keys are: https://…; or JWKS_FILE")
    jwks_file: Path | None = Field(default=None, description="a file with the issuer's keys, read again now and then")
    jwks_ca_file: Path | None = Field(
        default=None, description="the authority of JWKS_URL's certificate; none: the public ones"
    )
    claim: str = Field(default="tistream", min_length=1, description="the claim that has the grants, as JSON")

    @model_validator(mode="after")
    def _whole_or_nothing(self) -> Self:
        if self.issuer is None and any((self.audience, self.jwks_url, self.jwks_file)):
            raise ValueError("OIDC wants an ISSUER")
        if self.issuer is not None and (not self.audience or (self.jwks_url is None) == (self.jwks_file is None)):
            raise ValueError("OIDC wants an AUDIENCE, and either JWKS_URL or JWKS_FILE")
        if self.jwks_ca_file is not None and self.jwks_url is None:
            raise ValueError("OIDC: JWKS_CA_FILE is set without JWKS_URL, whose certificate it verifies")
        if self.jwks_url is not None and not _cannot_be_read_on_the_way(self.jwks_url):
            raise ValueError(
                "OIDC: JWKS_URL must begin with https://; over http:// the keys can be replaced on the way"
            )
        return self


class LimitSettings(BaseModel):
    """Limits of each tenant at each API server, where the tenant has none of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_second: int = Field(
        default=1_000, ge=0, description="requests of a tenant a second; beyond: 429; 0: any"
    )
    pulls_at_once: int = Field(default=0, ge=0, description="pulls of a tenant; 0: half of PULLS_MAX")
    served_bytes_per_second: int = Field(default=0, ge=0, description="bytes of pulls sent a second; 0: any")
    notifications_per_second: int = Field(default=5_000, ge=0, description="files announced a second; 0: any")


class ApiSettings(ServiceSettings):
    """Settings of the API server."""

    model_config = settings_config("API")

    cache_bytes: int = Field(
        default=256 << 20,
        ge=1 << 20,
        description="row groups kept in memory, and for a quarter of it what pulls have made of them",
    )
    keyed_cache_ms: int = Field(
        default=30_000,
        ge=0,
        le=3_600_000,
        description="how long row groups are kept of tenants with a key of their own: until then they may be served "
        "after the key was revoked",
    )
    chunk_rows: int = Field(default=32_768, ge=1, le=1 << 20, description="rows of a pull decoded at once")
    chunk_bytes: int = Field(default=16 << 20, ge=1 << 10, description="compressed bytes of a pull decoded at once")
    pulls_max: int = Field(
        default=224,
        ge=1,
        le=240,
        description="pulls answered at once; beyond: 429. What they hold together is PULL_MEMORY_BYTES",
    )
    pull_memory_bytes: int = Field(
        default=0,
        ge=0,
        description="memory of all pulls, 64 MiB for each that works or is not read; above it, pulls wait, and are "
        "refused with 429 after 5 s; a tenant has half at most; 0: half of the container's memory, or the machine's",
    )
    list_wait_ms: int = Field(default=2_000, ge=0, le=60_000, description="how long a list waits for its ts")
    lag_every_ms: int = Field(
        default=5_000, ge=500, le=600_000, description="how often each tenant's lag by stage is noted; an hour is kept"
    )
    access_log: bool = Field(default=True, description="log each answered request, with what it has sent")
    refresh_threads: int = Field(default=4, ge=1, le=64, description="tenants looked at in parallel")
    refusals_per_second: int = Field(
        default=20,
        ge=0,
        description="rejections (4xx) per second, of one token or else of one address, that are answered at "
        "once; further ones are delayed by up to 3 s; 0: no delay. With AUTH=on",
    )
    auth: Literal["off", "on"] = Field(default="off", description="on: each call wants a token")
    oidc: OidcSettings = OidcSettings()
    limits: LimitSettings = LimitSettings()


def _cannot_be_read_on_the_way(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        return parts.scheme == "http" and ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
