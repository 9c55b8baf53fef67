"""`tistream undo`: shows the changes that would undo transactions; with --apply, executes all of them or none."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tistream.clock import SystemClock
from tistream.restore.table_names import TableNames
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream_cli.restore.into import Into
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import USAGE, CliError
from tistream_client.cli.output import cell
from tistream_client.cli.times import shown_time, ts_text

_SHOWN_CAUSES = 20
_SHOWN_ROWS = 3
_VALUE_MAX = 40
_COUNTS = ("insert", "update", "delete", "unchanged", "conflicts")


@dataclass(frozen=True, slots=True)
class UndoOptions:
    """The options of `tistream undo`. Either `transactions` or `window` (from, to) is set."""

    transactions: Sequence[str]
    window: tuple[str, str] | None
    tables: Sequence[str]
    into: Into | None  # the target of --apply
    as_json: bool
    where: Sequence[str] = ()  # conditions of the form COLUMN=VALUE


def run_undo(client: ApiClient, cluster: str, tenant: str, options: UndoOptions) -> None:
    """Plan the undo and print the plan; if `into` is given, apply it. Raises CliError."""
    path = tenant_path(cluster, tenant, "undos")
    selection: dict[str, object] = {
        "start_ts": list(options.transactions) or None,
        "tables": list(options.tables) or None,
    }
    if options.where:
        selection["where"] = _values(options.where)
    if options.window is not None:
        now_ms = SystemClock().now_ms()
        selection["window"] = {"from": ts_text(options.window[0], now_ms), "to": ts_text(options.window[1], now_ms)}
    if options.into is None:
        _print(client.call("POST", path, {**selection, "mode": "plan"}), as_json=options.as_json)
        return
    with options.into.connect() as target:
        body = {**selection, "mode": "sql", "dialect": _dialect(target), "into_database": options.into.database}
        plan = client.call("POST", path, body)
        changed = apply(target, plan["statements"])
        _print({**plan, "applied": changed}, as_json=options.as_json)


def _values(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in given:
        column, equals, value = one.partition("=")
        if not column or not equals or column in found:
            raise CliError(f"--where {one!r} is not COLUMN=VALUE, such as id=7, or names a column twice", USAGE)
        found[column] = value
    return found


def _dialect(target: MySqlTarget) -> str:
    try:
        return target.dialect.value
    except TargetFailed as error:
        raise CliError(str(error)) from error


def apply(target: MySqlTarget, statements: Sequence[Mapping[str, Any]]) -> int:
    """Run the statements in one transaction. Each of them must change one row. Returns their number. Raises CliError,
    which names the row; then nothing has changed."""
    try:
        with target.transaction():
            for one in statements:
                _run(target, one)
    except TargetFailed as error:  # an error of BEGIN or COMMIT
        raise CliError(f"the undo was not applied, and nothing was changed: {error}") from error
    return len(statements)


def _run(target: MySqlTarget, one: Mapping[str, Any]) -> None:
    row = f"the {one['op']} of row {_text(one['key'])} of {TableNames(one['database'], one['table'])}"
    try:
        changed = target.execute(one["sql"])
    except TargetFailed as error:
        raise CliError(f"nothing was changed: {row} was refused: {error}") from error
    if changed != 1:
        raise CliError(
            f"nothing was changed: {row} found no row in the target that is as it was planned with. The row there "
            "differs from TiDB's, or has changed since: look at it, and plan again"
        )


def _print(plan: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(plan, indent=2, ensure_ascii=False) + "\n")
        return
    sys.stdout.write("\n".join(plan_lines(plan)) + "\n")


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """Format an answer of UndoTransactions as text: the counts, and the conflicts by table and cause with some examples
    of each. The member `applied`, which --apply adds, is the number of rows that were changed."""
    yield f"as of {plan['ts']} ({shown_time(plan['ts'])})"
    yield "  ".join(f"{plan['counts'][name]} {name}" for name in _COUNTS)
    causes: dict[str, list[Mapping[str, Any]]] = {}
    for one in plan["conflicts"]:
        causes.setdefault(_cause(one), []).append(one)
    for cause, conflicts in list(causes.items())[:_SHOWN_CAUSES]:
        yield f"{_rows(len(conflicts), 'conflict')}: {cause}"
        for one in conflicts[:_SHOWN_ROWS]:
            yield f"    {_text(one['key'])}: left as {_differing(one['left'], one['now'])}"
            yield f"    {' ' * len(_text(one['key']))}     now {_differing(one['now'], one['left'])}"
    for one in plan["dropped"][:_SHOWN_CAUSES]:
        yield f"dropped columns: {_name(one)} {_text(one['key'])}: {_text(one['values'])} cannot be written back"
    if len(causes) > _SHOWN_CAUSES or any(len(one) > _SHOWN_ROWS for one in causes.values()):
        yield "every conflict: -o json"
    if "applied" in plan:
        yield f"applied: {_rows(plan['applied'], 'row')} changed"
    else:
        yield "nothing was changed: --apply --into mysql://… runs it"


def _rows(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _name(one: Mapping[str, Any]) -> str:
    return cell(str(TableNames(one["database"], one["table"])))


def _cause(one: Mapping[str, Any]) -> str:
    by = one["by"]
    who = f" (start_ts {by['start_ts']}, committed {shown_time(by['commit_ts'])})" if by else ""
    return f"{_name(one)}: {one['reason']}{who}"


def _differing(row: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    """The members in which two rows differ, as text. If only one row exists, all members."""
    if row is None:
        return "no row"
    return _text({name: value for name, value in row.items() if other is None or other.get(name) != value})


def _text(values: Mapping[str, Any]) -> str:
    """Format names and values on one line. Long values are cut."""
    shown = ((cell(name), cell(value)) for name, value in values.items())
    cut = (f"{name}={text if len(text) <= _VALUE_MAX else text[:_VALUE_MAX] + '…'}" for name, text in shown)
    return " ".join(cut)
