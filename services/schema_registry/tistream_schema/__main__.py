"""`python -m tistream_schema`: builds the schema registry from the settings in the environment, and runs it."""

from fastapi import FastAPI

from tistream.clock import SystemClock
from tistream.service.http.serve import run_service
from tistream.storage.open import open_objects
from tistream_schema.app import build_app
from tistream_schema.settings import SchemaSettings


def main() -> None:
    """Serve the schema registry until SIGTERM."""
    run_service(SchemaSettings, _build)


def _build(settings: SchemaSettings) -> FastAPI:
    return build_app(settings, open_objects(settings.objects_url), None, SystemClock())


if __name__ == "__main__":
    main()
