"""The meta database of a test: an empty one, on each kind of database that there is."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "mariadb":
        url: str = request.getfixturevalue("mysql_url")
        return url
    return f"sqlite:///{tmp_path}/meta.db"
