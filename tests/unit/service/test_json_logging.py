from __future__ import annotations

import json
import logging
from pathlib import Path

from tistream.service.observe.logging import JsonFormatter


def _line(**extra: object) -> dict[str, object]:
    record = logging.LogRecord("tistream.x", logging.WARNING, "x.py", 1, "%s files", (3,), None)
    record.__dict__.update(extra)
    found = json.loads(JsonFormatter("meta").format(record))
    assert isinstance(found, dict)
    return found


def test_one_record_is_one_line_with_its_fields() -> None:
    line = _line(tenant="7/acme", number=2**63)
    assert line.pop("ts", "").endswith("+00:00")  # type: ignore[attr-defined]
    assert line == {
        "level": "warning",
        "service": "meta",
        "logger": "tistream.x",
        "message": "3 files",
        "tenant": "7/acme",
        "number": 2**63,
    }


def test_what_json_cannot_hold_is_written_as_its_repr() -> None:
    line = _line(path=Path("/x"), key=b"\xff", lone="\ud800", huge=2**70)
    assert line["key"] == "b'\\xff'"
    assert line["path"] == "PosixPath('/x')" or "x" in str(line["path"])


def test_error_brings_its_traceback() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "failed", None, info)
    text = JsonFormatter("meta").format(record)
    assert "\n" not in text
    assert "ValueError: no" in json.loads(text)["traceback"]
