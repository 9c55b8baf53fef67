"""What a tenant may use, as operators say it: in the meta database, and in the routes for those who see to it."""

from __future__ import annotations

from pydantic import Field

from tistream.wire.sorter import Wire

QUOTA_MAX = 1 << 53  # what a number of JSON holds everywhere


class Limits(Wire):
    """What a tenant may use. Null: as the settings have it. 0: as much as it likes."""

    requests_per_second: int | None = Field(default=None, ge=0, le=QUOTA_MAX)
    pulls_at_once: int | None = Field(default=None, ge=0, le=QUOTA_MAX)
    served_bytes_per_second: int | None = Field(default=None, ge=0, le=QUOTA_MAX)
    notifications_per_second: int | None = Field(default=None, ge=0, le=QUOTA_MAX)
    stored_bytes: int | None = Field(default=None, ge=0, le=QUOTA_MAX, description="more is told, and not refused")


NO_LIMITS = Limits()
