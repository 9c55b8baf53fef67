"""Prints documents of the API for people: one line for each member, with times beside TSO."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tistream_client.cli.output import cell, document_wanted, print_table, show_document
from tistream_client.cli.times import shown_ts


def show(found: Mapping[str, Any]) -> None:
    """Print a document: as JSON with `-o json`, and by default where stdout is no terminal."""
    if document_wanted():
        show_document(found)
    else:
        print_table(("member", "value"), [(cell(name), cell(text)) for name, text in facts(found)])


def facts(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The members of a document as (path, text)."""
    for name, value in found.items():
        if isinstance(value, Mapping) and value:
            yield from facts(value, f"{prefix}{name}.")
        elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
            for number, one in enumerate(value):
                yield from facts(one, f"{prefix}{name}[{number}].")
        elif name.endswith("_ts") and isinstance(value, str) and value.isdigit():
            yield f"{prefix}{name}", shown_ts(value)
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
