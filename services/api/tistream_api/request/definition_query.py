"""The query parameters of TableDefinition, the call that returns TiDB's TableInfo of a table as of a ts
(docs/restore.md)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tistream_api.request.point_queries import NOW, When, given_in, when


class DefinitionQuery(BaseModel):
    """The query parameters of TableDefinition."""

    model_config = ConfigDict(frozen=True)

    ts: str | None = Field(default=None, description="as of this time: a TSO, an RFC 3339 time, or now; now")

    def parsed(self, raw: bytes) -> When:
        """Parse the query string `raw`. Returns its `ts`. Raises InvalidRequest, which names the parameter."""
        return when("ts", given_in(raw, DefinitionQuery).get("ts", NOW))
