"""The settings of a service that runs Spark jobs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SparkSettings(BaseModel):
    """The Spark master that a service connects to, and further Spark settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    master: str = Field(default="local[*]", description="Spark master: local[*], spark://…, k8s://…")
    conf: dict[str, str] = Field(default_factory=dict, description="further Spark settings, as JSON")
