"""`python -m tistream_agent`: builds the agent from the settings in the environment, and runs it."""

from __future__ import annotations

import logging
import os

from fastapi import FastAPI

from tistream.clock import SystemClock
from tistream.service.http.serve import run_service
from tistream.storage.open import open_objects
from tistream_agent.app import build_app
from tistream_agent.run import FENCED
from tistream_agent.settings import AgentSettings

log = logging.getLogger(__name__)

EXIT_FENCED = 75


def main() -> None:
    """Run until SIGTERM, or until another agent has taken over the territory, the span of keys that this one reads
    (exit status 75)."""
    run_service(AgentSettings, _build)


def _build(settings: AgentSettings) -> FastAPI:
    return build_app(settings, open_objects(settings.objects_url), SystemClock(), _ended)


def _ended(code: str) -> None:
    # A fenced process has nothing to do any more. With any other code it stays, so that /status says the way out and
    # a supervisor does not start it in a loop.
    if code == FENCED:
        log.critical("another agent has taken the territory over: the process ends")
        os._exit(EXIT_FENCED)


if __name__ == "__main__":
    main()
