"""The command `python -m tistream_dispatcher`: builds the dispatcher from its settings, and serves."""

from fastapi import FastAPI

from tistream.clock import SystemClock
from tistream.service.http.serve import run_service
from tistream.storage.open import open_objects
from tistream_dispatcher.app import build_app
from tistream_dispatcher.settings import DispatcherSettings


def main() -> None:
    """Start the dispatcher, and serve until SIGTERM."""
    run_service(DispatcherSettings, _build)


def _build(settings: DispatcherSettings) -> FastAPI:
    return build_app(settings, open_objects(settings.objects_url), SystemClock())


if __name__ == "__main__":
    main()
