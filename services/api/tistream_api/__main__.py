"""The command `python -m tistream_api`: builds the API server from its settings, and serves."""

from fastapi import FastAPI

from tistream.clock import SystemClock
from tistream.service.http.serve import run_service
from tistream.storage.open import open_objects
from tistream_api.app import build_app
from tistream_api.settings import ApiSettings


def main() -> None:
    """Start the API server, and serve until SIGTERM."""
    run_service(ApiSettings, _build)


def _build(settings: ApiSettings) -> FastAPI:
    return build_app(settings, open_objects(settings.objects_url), SystemClock())


if __name__ == "__main__":
    main()
