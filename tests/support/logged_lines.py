"""What this process logs, as a service logs it. Loggers are afterwards as they were before: a service sets the levels
of some libraries, too."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tistream.service.observe.logging import configure_logging


@contextmanager
def logged_lines() -> Iterator[io.StringIO]:
    """The JSON lines of what is logged in the `with` block."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, levels = root.handlers[:], {logger: logger.level for logger in _loggers()}
    configure_logging("test", "INFO", stream)
    try:
        yield stream
    finally:
        root.handlers[:] = handlers
        for logger in _loggers():
            logger.setLevel(levels.get(logger, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.getLogger(), *(one for one in known if isinstance(one, logging.Logger))]
