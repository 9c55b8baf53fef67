"""Settings from the environment: one prefix per service, and no silent misspellings.

A service declares

    class MetaSettings(ServiceSettings):
        model_config = settings_config("META")
        database_url: str = "sqlite:///meta.db"

and reads it with `load_settings(MetaSettings)`: `TISTREAM_META__DATABASE_URL=…`. Groups nest with `__`
(`TISTREAM_META__LEASE__SECONDS`). A variable that begins with the prefix and names no field refuses to start.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tistream.errors import InvalidRequest
from tistream.storage.open import check_url

NESTED = "__"


class SettingsError(Exception):
    """The environment does not make valid settings; the text names each variable and what is wrong with it."""


def settings_config(service: str) -> SettingsConfigDict:
    """The model_config of a service's settings: prefix `TISTREAM_<SERVICE>__`, frozen, extra forbidden."""
    return SettingsConfigDict(
        env_prefix=f"TISTREAM_{service.upper()}{NESTED}",
        env_nested_delimiter=NESTED,
        frozen=True,
        extra="forbid",
    )


class ServiceSettings(BaseSettings):
    """What every service needs. Durations end in their unit."""

    model_config = settings_config("SERVICE")

    host: str = Field(default="127.0.0.1", description="address to bind")
    port: int = Field(default=8000, description="port to bind")
    listen_fd: int | None = Field(
        default=None, description="an inherited listening socket; then host/port only name it"
    )
    advertise_url: str | None = Field(
        default=None, max_length=255, description="where peers reach this service; else http://host:port"
    )
    node_id: str = Field(default="", description="name of this process, the same after a restart; else the service's")
    meta_url: str = Field(
        default="http://127.0.0.1:8001", description="base URL of the meta server; of several, separated by commas"
    )
    objects_url: str = Field(default="file:///var/lib/tistream/objects", description="object store (storage.open)")
    log_level: str = Field(
        default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="the least that is logged"
    )
    allow_insecure_bind: bool = Field(default=False, description="bind a non-loopback address without auth")
    shutdown_grace_seconds: int = Field(default=2, ge=0, le=600, description="how long open requests may go on")
    shutdown_limit_seconds: int = Field(default=5, ge=1, le=600, description="then the process ends, whatever hangs")

    @field_validator("port")  # here and not at the field, which a service may declare again for its own default
    @classmethod
    def _port(cls, port: int) -> int:
        if not 0 <= port <= 65535:
            raise ValueError("must lie from 0 to 65535")
        return port

    @field_validator("advertise_url")
    @classmethod
    def _base_url(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return url.rstrip("/") if url is not None else None

    @field_validator("meta_url")
    @classmethod
    def _base_urls(cls, urls: str) -> str:
        return ",".join(cls._base_url(url.strip()) or "" for url in urls.split(","))

    @field_validator("objects_url")
    @classmethod
    def _known_store(cls, url: str) -> str:
        try:
            check_url(url)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        return url

    @model_validator(mode="after")
    def _loopback_unless_told(self) -> Self:
        if not self.allow_insecure_bind and not _is_loopback(self.host):
            raise ValueError(
                f"host {self.host} is reachable from other machines and this service has no authentication: "
                "bind 127.0.0.1, or set ALLOW_INSECURE_BIND=true behind a network policy of your own"
            )
        return self

    @classmethod
    def service_name(cls) -> str:
        """`meta` for the prefix `TISTREAM_META__`."""
        return str(cls.model_config["env_prefix"]).removeprefix("TISTREAM_").removesuffix(NESTED).lower()

    @property
    def node(self) -> str:
        """The process's name: `node_id`, or the service's name with `-1`."""
        return self.node_id or f"{self.service_name()}-1"

    @property
    def url(self) -> str:
        """The base URL that peers use."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.advertise_url or f"http://{host}:{self.port}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


S = TypeVar("S", bound=ServiceSettings)


def load_settings(cls: type[S], environ: Mapping[str, str] | None = None) -> S:
    """Read `cls` from the environment (`environ` is only looked at for misspelt names). Raises SettingsError."""
    prefix = str(cls.model_config["env_prefix"])
    fields = {name.upper() for name in cls.model_fields}
    strangers = [
        name
        for name in sorted(os.environ if environ is None else environ)
        if name.upper().startswith(prefix) and name.upper()[len(prefix) :].split(NESTED)[0] not in fields
    ]
    if strangers:
        known = ", ".join(sorted(fields))
        raise SettingsError(f"unknown setting {', '.join(strangers)}; {prefix}… may be followed by {known}")
    try:
        return cls()
    except ValidationError as error:
        raise SettingsError(_explain(prefix, error)) from error


def _explain(prefix: str, error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        where = NESTED.join(str(part) for part in item["loc"]).upper()
        lines.append(f"{prefix}{where}: {item['msg']}" if where else item["msg"])
    return "; ".join(lines)
