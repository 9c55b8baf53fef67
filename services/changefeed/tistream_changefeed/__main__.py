"""The command `python -m tistream_changefeed`: builds the changefeed service from its settings, and serves."""

from __future__ import annotations

from random import SystemRandom

from fastapi import FastAPI

from tistream.clock import SystemClock
from tistream.service.http.serve import run_service
from tistream.storage.open import open_objects
from tistream_changefeed.app import build_app
from tistream_changefeed.settings import ChangefeedSettings


def main() -> None:
    """Start the changefeed service, and serve until SIGTERM."""
    run_service(ChangefeedSettings, _build)


def _build(settings: ChangefeedSettings) -> FastAPI:
    return build_app(settings, open_objects(settings.objects_url), SystemClock(), SystemRandom())


if __name__ == "__main__":
    main()
