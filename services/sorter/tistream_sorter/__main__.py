"""`python -m tistream_sorter`: the composition root of the sorter, the only service with a JVM."""

from fastapi import FastAPI

from tistream.clock import SystemClock
from tistream.service import java
from tistream.service.serve import run_service
from tistream.storage.open import open_objects
from tistream_sorter.app import build_app
from tistream_sorter.settings import SorterSettings


def main() -> None:
    """Serve until SIGTERM."""
    run_service(SorterSettings, _build)


def _build(settings: SorterSettings) -> FastAPI:
    java.ensure()
    return build_app(settings, open_objects(settings.objects_url), SystemClock())


if __name__ == "__main__":
    main()
