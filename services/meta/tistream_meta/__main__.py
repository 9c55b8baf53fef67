"""The command `python -m tistream_meta`: builds the meta server from its settings, and serves."""

from fastapi import FastAPI

from tistream.clock import SystemClock
from tistream.service.http.serve import run_service
from tistream.storage.open import open_objects
from tistream_meta.app import build_app
from tistream_meta.settings import MetaSettings


def main() -> None:
    """Start the meta server, and serve until SIGTERM."""
    run_service(MetaSettings, _build)


def _build(settings: MetaSettings) -> FastAPI:
    return build_app(settings, open_objects(settings.objects_url), SystemClock())


if __name__ == "__main__":
    main()
