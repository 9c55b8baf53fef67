"""Logs are JSON lines on stderr. A line has `ts`, `level`, `service`, `logger`, `message`, `cause_id` (tistream.cause),
`trace_id` if there is one (tistream.trace), and the members of `extra=`.

    log = logging.getLogger(__name__)
    log.info("tenant created", extra={"tenant": "7/acme", "tasks": 4})
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Any

import orjson

from tistream import cause, trace

# Attributes of a log record that logging, Python 3.12 and uvicorn set.
_OWN = {"message", "asctime", "taskName", "color_message"}
_STANDARD = _OWN | set(logging.LogRecord("", 0, "", 0, "", None, None).__dict__)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON. A member that JSON cannot represent is written as its repr."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (cause_id := cause.current()) is not None:
            line["cause_id"] = cause_id
        if (context := trace.here().context) is not None and context.sampled:
            line["trace_id"] = context.trace_id
        line.update((name, value) for name, value in record.__dict__.items() if name not in _STANDARD)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:  # lone surrogates, integers beyond 64 bits: rare, and no reason to lose a line
            return json.dumps(line, default=repr)


def configure_logging(service: str, level: str = "INFO", stream: IO[str] | None = None) -> None:
    """Send every logger of the process, uvicorn's included, to `stream` (default stderr) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    # These loggers write a line per request or per byte, which helps only their authors.
    for name in ("httpx", "httpcore", "py4j", "botocore", "urllib3", "asyncio", "numba"):
        logging.getLogger(name).setLevel(logging.WARNING)
