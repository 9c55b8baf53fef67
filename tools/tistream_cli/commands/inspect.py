"""`tistream inspect`: prints one object of the object store, or one file, in readable form."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tistream.errors import TiStreamError
from tistream.logbackup.metadata import Slice
from tistream.storage.open import open_objects
from tistream_cli.commands.describe import Description, describe, to_json
from tistream_cli.commands.describe_log import MARK, describe_metadata
from tistream_client.cli.errors import CliError

_WIDTH = 4_000
_CELL_MAX = 48


def run_inspect(
    target: str, objects_url: str | None, rows_max: int, as_json: bool, *, with_entries: bool = False
) -> None:
    """Print the content of `target`. Raises CliError if it does not exist, is damaged, or has an unknown format."""
    try:
        found = _described(target, objects_url, rows_max, with_entries=with_entries)
    except TiStreamError as error:
        raise CliError(str(error)) from error
    if as_json:
        sys.stdout.write(json.dumps(to_json(found), indent=2, default=str) + "\n")
    else:
        _show(found)


def _described(target: str, objects_url: str | None, rows_max: int, *, with_entries: bool) -> Description:
    prefix, mark, name = target.rpartition(MARK)
    if not mark or not name.endswith(".meta") or objects_url is not None:
        return describe(target, _read(target, objects_url), rows_max)
    if not Path(prefix).is_dir() and "://" not in prefix:
        raise CliError(
            f"cannot read {target}: there is no directory {prefix}; give its path, or the URL of the object store"
        )
    opened = open_objects(prefix if "://" in prefix else str(Path(prefix).absolute()))
    key = f"{mark.lstrip('/')}{name}"

    def stored(one: Slice) -> bytes:
        return opened.get_range(one.path, one.offset, one.length)

    return describe_metadata(key, opened.get(key), rows_max, stored if with_entries else None)


def _read(target: str, objects_url: str | None) -> bytes:
    if objects_url is not None:
        return open_objects(objects_url).get(target)
    try:
        return Path(target).read_bytes()
    except OSError as error:
        raise CliError(
            f"cannot read {target}: {error.strerror}; a key of an object store needs --objects URL"
        ) from error


def _show(found: Description) -> None:
    # Lines are not limited to the terminal's width: folded or scrolled lines are easier to read than squeezed columns.
    console = Console(highlight=False, width=_WIDTH)
    console.print(found.kind, style="bold")
    for name, value in found.facts.items():
        console.print(f"  {name}: {value}", markup=False)
    for sheet in found.sheets:
        if not sheet.rows:
            console.print(f"{sheet.title}: {sheet.total}", markup=False)
            continue
        shown = f" (first {len(sheet.rows)} of {sheet.total})" if sheet.total > len(sheet.rows) else ""
        table = Table(title=f"{sheet.title}{shown}", title_justify="left", box=None, pad_edge=False)
        for column in sheet.columns:
            table.add_column(column, no_wrap=True)
        for row in sheet.rows:
            table.add_row(*(_cut(text) for text in row))
        console.print(table)


def _cut(value: str | None) -> Text:
    """Format a value for a cell of a table. Object keys, which contain "/", stay whole, and other long values are
    cut."""
    text = value or ""
    return Text(text if len(text) <= _CELL_MAX or "/" in text else text[: _CELL_MAX - 1] + "…")
