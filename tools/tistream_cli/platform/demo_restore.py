"""`tistream demo-restore`: finds an UPDATE that changed most of a table of a recorded TiDB, and undoes it in a
MariaDB."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tistream.targets.mysql import MySqlTarget
from tistream.targets.mysql_url import MySqlUrl
from tistream_cli.platform.data_dir import OWN_UMASK
from tistream_cli.platform.demo_platform import DemoClient, empty_data_dir, platform_of, push_whole
from tistream_cli.platform.local_mariadb import mariadb, programs
from tistream_cli.platform.ports import free_ports
from tistream_cli.platform.recorded import Recorded, load_recorded
from tistream_cli.restore.into import Into
from tistream_cli.restore.restore import RestoreOptions, run_restore
from tistream_cli.restore.undo import UndoOptions, run_undo
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import CliError
from tistream_client.cli.points.reads import Line, Named, answer_lines, pages, versions
from tistream_client.cli.points.show import show_events, show_history

_DATABASE, _TABLE = "wide", "large"
_COPY = "copy"  # the name of the database in MariaDB
_MANY = 1_000  # transactions that changed this number of rows are suspects
_LOOKED_AT = 50  # number of rows whose history is read
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class DemoRestoreOptions:
    """The arguments of the demo: the recorded set with table wide.large, the demo's directory, and the platform's port
    (0: any free port)."""

    golden: Path
    data_dir: Path
    port: int


def run_demo_restore(options: DemoRestoreOptions) -> None:
    """Run the demo. Raises CliError if any part fails, or if the undone table is not as it was before."""
    programs()
    console = Console(highlight=False, soft_wrap=True)
    recorded = load_recorded(options.golden)
    os.umask(OWN_UMASK)  # this process writes into the platform's directory
    empty_data_dir(options.data_dir)
    console.print(f"starting TiStream in {options.data_dir} …")
    with platform_of(options.data_dir, options.port) as url:
        client = DemoClient(url)
        push_whole(client, recorded, options.data_dir)
        console.print(f"pushed {len(recorded.arrivals)} change files that TiDB's stores wrote; starting MariaDB …")
        (port,) = free_ports(1, random.SystemRandom())
        with mariadb(options.data_dir / "mariadb", port) as server:
            _Story(console, client, recorded, server).run()


@dataclass(frozen=True, slots=True)
class _Story:
    """Runs the steps of the demo, once TiStream has all changes of the recording."""

    console: Console
    client: ApiClient
    recorded: Recorded
    server: MySqlUrl

    def run(self) -> None:
        cluster, tenant = self.recorded.tenant.cluster_id, self.recorded.tenant.tenant_id
        into = Into(replace(self.server, database=_COPY), None, _COPY)
        name = f"{_DATABASE}.{_TABLE}"
        self._step("The table as it is now, restored into a MariaDB.", f"restore {name} --at {self.recorded.end_ts} "
                   f"--into mysql://…/{_COPY}")  # fmt: skip
        run_restore(self.client, cluster, tenant, RestoreOptions(name, str(self.recorded.end_ts), into))
        key, start_ts = self._damage()
        self._step("A row looks wrong. Who changed it?", f"history {name} '{json.dumps(key)}'")
        show_history(versions(self.client, self._named(), {"key": json.dumps(key)}, 10))
        self._step("What else did that transaction change?", f"txn {start_ts}")
        events = list(answer_lines(self.client, tenant_path(cluster, tenant, "transactions", start_ts), {}))
        show_events(iter([*events[:_SHOWN], events[-1]]))
        self.console.print(f"… {events[-1]['rows']} rows in all: an UPDATE of most of the table.")
        self._step("What would its undo change, and what stands in its way?", f"undo --txn {start_ts}")
        plan = self._plan(start_ts)
        run_undo(self.client, cluster, tenant, UndoOptions([start_ts], None, [], None, as_json=False))
        later = sorted({one["by"]["start_ts"] for one in plan["conflicts"] if one["by"] is not None}, key=int)
        wanted = [start_ts, *later]
        self._step("A later transaction has deleted rows of it. Take back both, in MariaDB.",
                   f"undo {' '.join(f'--txn {one}' for one in wanted)} --apply --into mysql://…/{_COPY}")  # fmt: skip
        before = self._differing(int(events[-1]["commit_ts"]) - 1)
        run_undo(self.client, cluster, tenant, UndoOptions(wanted, None, [], into, as_json=False))
        self._judge(before, self._differing(int(events[-1]["commit_ts"]) - 1), len(self._kept(wanted, events[-1])))

    def _step(self, why: str, command: str) -> None:
        tenant = self.recorded.tenant
        self.console.print(f"\n{why}", style="bold", markup=False)
        self.console.print(
            f"$ tistream {command} --cluster {tenant.cluster_id} --tenant {tenant.tenant_id}", markup=False
        )

    def _named(self) -> Named:
        return Named(self.recorded.tenant.cluster_id, self.recorded.tenant.tenant_id, _DATABASE, _TABLE)

    def _rows(self, ts: int) -> list[Line]:
        lines = pages(self.client, self._named().path("rows"), {"ts": str(ts)}, {}, None)
        return [line for line in lines if line["type"] == "row"]

    def _damage(self) -> tuple[dict[str, Any], str]:
        """Find a row that a large transaction has changed. Returns (the row's key, that transaction). Raises
        CliError."""
        for row in self._rows(self.recorded.end_ts)[:_LOOKED_AT]:
            newest = next(versions(self.client, self._named(), {"key": json.dumps(row["key"])}, 1))
            *_, end = self._transaction(newest["start_ts"])
            if end["rows"] >= _MANY and newest["old_row"] is not None:
                return row["key"], newest["start_ts"]
        raise CliError(
            f"the recorded set has no transaction that changed {_MANY} rows of {_DATABASE}.{_TABLE}: choose another "
            "--golden"
        )

    def _transaction(self, start_ts: str) -> Iterator[Line]:
        tenant = self.recorded.tenant
        path = tenant_path(tenant.cluster_id, tenant.tenant_id, "transactions", start_ts)
        return answer_lines(self.client, path, {})

    def _plan(self, start_ts: str) -> Any:
        tenant = self.recorded.tenant
        path = tenant_path(tenant.cluster_id, tenant.tenant_id, "undos")
        return self.client.call("POST", path, {"start_ts": [start_ts]})

    def _kept(self, undone: list[str], bad: Line) -> set[str]:
        """The keys, as JSON, of rows that transactions not in `undone` have changed after the commit of `bad`. The undo
        may leave their values as they are."""
        params = {"start_ts": bad["commit_ts"], "limit": "1000000"}
        lines = answer_lines(self.client, self._named().path("changes"), params)
        return {json.dumps(one["key"]) for one in lines if one["type"] == "row" and one["start_ts"] not in undone}

    def _differing(self, ts: int) -> int:
        """The number of rows in which the MariaDB differs from the table as it was at `ts`."""
        rows = self._rows(ts)
        names = list(rows[0]["row"])
        selected = ", ".join(f"CONVERT(`{one}` USING utf8mb4)" for one in names)
        with MySqlTarget(self.server) as target:
            there = Counter(target.rows(f"SELECT {selected} FROM `{_COPY}`.`{_TABLE}`"))
        before = Counter(tuple(_text(row["row"][name]) for name in names) for row in rows)
        return max((there - before).total(), (before - there).total())

    def _judge(self, before: int, after: int, kept: int) -> None:
        """Compare the numbers of differing rows before and after the undo, and print the result. Raises CliError if the
        undo did not restore the earlier rows."""
        self.console.print(
            f"\nrows of {_DATABASE}.{_TABLE} in MariaDB that differ from just before the UPDATE: {before} before the "
            f"undo, {after} after it ({kept} rows have later changes of other transactions, which stay)"
        )
        if after > kept or after >= before:
            raise CliError(
                f"{_DATABASE}.{_TABLE}: after the undo {after} rows differ from before the UPDATE, and at most {kept} "
                "may: this is a fault of TiStream; keep the data directory and report it"
            )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
