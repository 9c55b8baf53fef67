"""Reads settings from environment variables. Each service has a prefix, and a misspelt variable is an error.

A service declares

class MetaSettings(ServiceSettings):
        model_config = settings_config("META")
        database_url: str = "sqlite:///meta.db"

and reads it with `load_settings(MetaSettings)`: `TISTREAM_META__DATABASE_URL=…`. Groups nest with `__`
(`TISTREAM_META__LEASE__SECONDS`). The service does not start if a variable begins with the prefix and names no field,
or has the prefix of an unknown service.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tistream.errors import InvalidRequest
from tistream.storage.open import check_url

NESTED = "__"
SERVICES = ("META", "DISPATCHER", "SORTER", "SCHEMA", "API", "INGEST", "AGENT", "CHANGEFEED")
_SERVICE_PREFIX = re.compile(r"TISTREAM_[A-Z]+?__")


class SettingsError(Exception):
    """Raised if the environment contains invalid settings. The text names each variable and its problem."""


def settings_config(service: str) -> SettingsConfigDict:
    """The pydantic configuration of the settings of `service`, for example "META": the variables have the prefix
    `TISTREAM_<SERVICE>__`, the settings are immutable, and unknown members are errors."""
    return SettingsConfigDict(
        env_prefix=f"TISTREAM_{service.upper()}{NESTED}",
        env_nested_delimiter=NESTED,
        frozen=True,
        extra="forbid",
    )


class TlsSettings(BaseModel):
    """Certificates of this process, and the authorities that it trusts. The files are in PEM, and are read again after
    changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cert_file: Path | None = Field(
        default=None, description="certificate of this process, which then serves https only"
    )
    key_file: Path | None = Field(default=None, description="private key of the certificate")
    ca_file: Path | None = Field(
        default=None, description="authority of the peers' certificates; default: the public ones"
    )
    client_ca_file: Path | None = Field(
        default=None, description="authority of client certificates, which are then required (mutual TLS)"
    )
    terminated_elsewhere: bool = Field(
        default=False, description="a proxy or a mesh encrypts the traffic, so plain connections are accepted"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("CERT_FILE and KEY_FILE go together")
        if self.client_ca_file is not None and self.cert_file is None:
            raise ValueError("CLIENT_CA_FILE needs CERT_FILE and KEY_FILE")
        return self

    @property
    def serves(self) -> bool:
        """Whether this process serves TLS."""
        return self.cert_file is not None


class ServiceSettings(BaseSettings):
    """Settings that every service has. The names of durations end in their unit."""

    model_config = settings_config("SERVICE")

    host: str = Field(default="127.0.0.1", description="address to bind")
    port: int = Field(default=8000, description="port to bind")
    listen_fd: int | None = Field(
        default=None,
        description="file descriptor of an inherited listening socket; host and port then only describe it",
    )
    advertise_url: str | None = Field(
        default=None, max_length=255, description="URL under which peers reach this service; default: http://host:port"
    )
    node_id: str = Field(
        default="", description="name of this process, the same after a restart; default: the service's name with -1"
    )
    meta_url: str = Field(
        default="http://127.0.0.1:8001", description="base URLs of the meta servers, separated by commas"
    )
    objects_url: str = Field(
        default="file:///var/lib/tistream/objects", description="URL of the object store (docs/object-storage.md)"
    )
    log_level: str = Field(
        default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="lowest level that is logged"
    )
    service_key_file: Path | None = Field(
        default=None, description="keys for tokens between services, base64, one per line; the first signs, all verify"
    )
    metrics_token_file: Path | None = Field(
        default=None, description="file with a bearer token that /metrics accepts besides service tokens"
    )
    tls: TlsSettings = TlsSettings()
    traces_url: str | None = Field(
        default=None, description="OTLP/HTTP endpoint for spans (`…/v1/traces`); needs `pip install tistream[otel]`"
    )
    traces_ratio: float = Field(default=1.0, ge=0, le=1, description="share of traces that are sampled")
    traces_headers_file: Path | None = Field(
        default=None, description="file with headers for the collector, one `name: value` per line"
    )
    usage_ms: int = Field(
        default=10_000,
        ge=100,
        le=600_000,
        description="interval of usage reports of tenants; the unreported usage of a killed process is not counted",
    )
    shutdown_grace_seconds: int = Field(
        default=2, ge=0, le=600, description="time that open requests may take after SIGTERM"
    )
    shutdown_limit_seconds: int = Field(
        default=5, ge=1, le=600, description="time after which the process ends regardless"
    )

    # Not a constraint of the field, because a service may redeclare the field with its own default.
    @field_validator("port")
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

    @field_validator("traces_url")
    @classmethod
    def _collector(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and a host")
        if "@" in parts.netloc or parts.query:
            raise ValueError("must hold no secret: TRACES_HEADERS_FILE")
        return url

    @field_validator("objects_url")
    @classmethod
    def _known_store(cls, url: str) -> str:
        try:
            check_url(url)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        return url

    @model_validator(mode="after")
    def _locked(self) -> Self:
        if self.metrics_token_file is not None and self.service_key_file is None:
            raise ValueError("METRICS_TOKEN_FILE needs SERVICE_KEY_FILE")
        if (reason := self.refusal_of(self.host)) is not None:
            raise ValueError(reason)
        if self.traces_headers_file is not None and not self._encrypted_to_the_collector():
            raise ValueError("TRACES_HEADERS_FILE needs a TRACES_URL that begins with https://, or is on this machine")
        return self

    def _encrypted_to_the_collector(self) -> bool:
        parts = urlsplit(self.traces_url or "")
        return parts.scheme == "https" or self.tls.terminated_elsewhere or _is_loopback(parts.hostname or "")

    def refusal_of(self, host: str) -> str | None:
        """The reason why these settings do not allow the process to listen on the address `host`; None if they do. An
        address that other machines can reach needs keys of services and TLS."""
        missing = [] if _is_loopback(host) else list(self._missing_locks())
        if not missing:
            return None
        needs = " and ".join(missing)
        return f"host {host} is reachable from other machines: that needs {needs}; or bind 127.0.0.1"

    def _missing_locks(self) -> Iterator[str]:
        """The names of settings that are not set, although a process that other machines can reach must have them."""
        if self.service_key_file is None:
            yield "SERVICE_KEY_FILE"
        if not self.tls.serves and not self.tls.terminated_elsewhere:
            yield "TLS__CERT_FILE and TLS__KEY_FILE (or TLS__TERMINATED_ELSEWHERE=true, where a proxy encrypts)"

        if getattr(self, "auth", "on") == "off":  # a service that has users, and does not authenticate them
            yield "AUTH=on"

    @classmethod
    def service_name(cls) -> str:
        """The service's name, as it is in the prefix: `meta` for `TISTREAM_META__`."""
        return str(cls.model_config["env_prefix"]).removeprefix("TISTREAM_").removesuffix(NESTED).lower()

    @property
    def node(self) -> str:
        """The process's name in the platform: `node_id`, or the service's name followed by `-1`."""
        return self.node_id or f"{self.service_name()}-1"

    @property
    def url(self) -> str:
        """The base URL at which other processes reach this one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.advertise_url or f"{'https' if self.tls.serves else 'http'}://{host}:{self.port}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


S = TypeVar("S", bound=ServiceSettings)


def load_settings(cls: type[S], environ: Mapping[str, str] | None = None) -> S:
    """Read the settings `cls` from the environment variables of the process. `environ` (default: the same variables) is
    only searched for unknown names; values are never taken from it. Raises SettingsError if a name is unknown or a
    value is invalid."""
    prefix = str(cls.model_config["env_prefix"])
    _refuse_unknown_services(prefix, os.environ if environ is None else environ)
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


def _refuse_unknown_services(own: str, environ: Mapping[str, str]) -> None:
    """Check that no variable in `environ` has the prefix of an unknown service. `own`: the prefix of this service.
    Raises SettingsError if one has: a misspelt AUTH=on would disable authentication without notice."""
    known = {own, *(settings_config(service)["env_prefix"] for service in SERVICES)}
    for name in sorted(environ):
        found = _SERVICE_PREFIX.match(name.upper())
        if found is not None and found[0] not in known:
            there_are = ", ".join(f"{prefix}…" for prefix in sorted(known))
            raise SettingsError(f"unknown setting {name}: no service is called so; there are {there_are}")


def _explain(prefix: str, error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        where = NESTED.join(str(part) for part in item["loc"]).upper()
        lines.append(f"{prefix}{where}: {item['msg']}" if where else item["msg"])
    return "; ".join(lines)
