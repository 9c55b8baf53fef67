"""The settings of the agent. Their environment variables begin with TISTREAM_AGENT__."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.tenant_kind import TenantKind
from tistream.service.settings import ServiceSettings, settings_config
from tistream_agent.order import Order, addresses
from tistream_agent.upstream.keyspaces import EVERY
from tistream_agent.upstream.stores import TlsFiles, host_and_port

_OWN = ("pd", "cluster", "tenant")


class UpstreamTls(BaseModel):
    """Certificate files for the connections to PD and TiKV, in PEM. They are read again at each new connection."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ca_file: Path | None = Field(default=None, description="authority of the certificates of PD and TiKV")
    cert_file: Path | None = Field(default=None, description="client certificate that PD and TiKV accept")
    key_file: Path | None = Field(default=None, description="private key of that certificate")

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        """Treat an empty text as an unset value, because Docker Compose passes an empty text for a variable that .env
        does not set."""
        return None if value == "" else value

    @property
    def files(self) -> TlsFiles:
        """The files in the form that Channels needs; a file that is not set is None."""
        return TlsFiles(self.ca_file, self.cert_file, self.key_file)


class AgentSettings(ServiceSettings):
    """The settings of the agent."""

    model_config = settings_config("AGENT")

    port: int = Field(default=8007, ge=0, le=65535, description="port to bind")
    pd: str = Field(
        default="",
        description="addresses of PD, host:port, separated by commas; without PD, CLUSTER and TENANT the agent holds "
        "the territories that the meta servers give it",
    )
    pd_cluster_id: int | None = Field(
        default=None,
        ge=1,
        description="cluster id that PD must have; default: that of its first answer. Of an agent that the meta "
        "servers give territories: of the only cluster that it can reach; default: any",
    )
    upstream_tls: UpstreamTls = UpstreamTls()
    cluster: str = Field(default="", description="upstream cluster id of the tenant")
    tenant: str = Field(default="", description="upstream tenant id")
    territory: int = Field(
        default=1, ge=1, le=2**63 - 1, description="id of the territory, which is the store id of its files"
    )
    kind: TenantKind = Field(default=TenantKind.TIDB, description="tidb, or raw: the changes of RawKV (API V2)")
    keyspace: str = Field(
        default="",
        description="name of the keyspace; empty: TiDB without keyspaces, or RawKV's keyspace 0; *: all of RawKV",
    )
    api_url: str = Field(
        default="", description="URL of the API to announce files to; empty: dispatchers find them by LIST"
    )
    api_token_file: Path | None = Field(default=None, description="file with a token of the API that may push")
    cut_ms: int = Field(default=1_000, ge=50, le=60_000, description="time after which a file with rows is written")
    idle_cut_ms: int = Field(
        default=3_000, ge=50, le=60_000, description="time after which a file with watermarks only is written"
    )
    raw_hold_ms: int = Field(
        default=0,
        ge=0,
        le=600_000,
        description="of RawKV: time by which each resolved ts of TiKV is lowered, for a TiKV whose next leader writes "
        "below what the leader before resolved (state `upstream`); changes arrive later by as much",
    )
    range_logs: int = Field(
        default=0,
        ge=0,
        le=1_024,
        description="number of key ranges of a territory whose regions share a log, with one watermark row a file; 0: "
        "each region has a log of its own. 64 or more suit a territory of more than 20,000 regions: one slow region "
        "holds its whole range",
    )
    buffer_bytes: int = Field(
        default=256 << 20,
        ge=8 << 20,
        description="bytes of rows in memory, of all territories together, above which TiKV is not read",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.keyspace == EVERY and self.kind is not TenantKind.RAW:
            raise ValueError("KEYSPACE=* is every keyspace of RawKV: it goes with KIND=raw")
        if self.given_by_meta:
            return self
        missing = [name for name in _OWN if not getattr(self, name)]
        if missing:
            raise ValueError(
                f"{', '.join(name.upper() for name in missing)} must be set; without PD, CLUSTER and TENANT the agent "
                "holds the territories that the meta servers give it"
            )
        try:
            self.tenant_key  # noqa: B018 - it checks the names
            for address in self.pd_addresses:
                host_and_port(address)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def given_by_meta(self) -> bool:
        """Whether the meta servers assign territories to the agent. They do if PD, CLUSTER and TENANT are not set."""
        return not any(getattr(self, name) for name in _OWN)

    @property
    def pd_addresses(self) -> tuple[str, ...]:
        """The addresses of PD."""
        return addresses(self.pd)

    @property
    def order(self) -> Order:
        """The order to hold the territory that the settings name."""
        return Order(self.tenant_key, self.territory, self.pd_addresses, self.pd_cluster_id, self.kind, self.keyspace)

    @property
    def tenant_key(self) -> TenantKey:
        """The tenant that the settings name. Raises InvalidRequest for malformed names."""
        return TenantKey.parse(self.cluster, self.tenant)
