"""How fast a changefeed writes into a MariaDB on the same machine, beside PyMySQL's executemany of the same rows."""

from __future__ import annotations

import statistics

from bench import proc_tree
from bench.contenders.feed_mysql import TableLoads
from bench.inputs.size import size
from bench.measure import Bench
from support.mariadb import running
from tistream.service import allocators

WHAT = (
    "the holder of a changefeed as a worker runs it, on a pool in memory with rows of ten mixed columns of one table, "
    "into a MariaDB, exactly once, and as the rows with which it begins (snapshot=now); rows for each second "
    "of two cores are those of both processors' time that the worker and the server take together, and so are those of "
    "executemany with 10,000 rows a transaction; the lag is that of 2,000 events a second, half of them updates, in "
    "parts of 0.2 s"
)
ROWS, CORES, AIM = size(200_000), 2, 100_000.0
SERVER = (
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-size=512M",
    "--innodb-log-file-size=512M",
)
USER, LAG_ROWS = "bench", size(40_000)
LOADS = (("inserts", 0.0, "?worker-count=4"), ("every other event an update", 0.5, "?worker-count=4"),
         ("inserts, whole transactions", 0.0, "?transaction-atomicity=global"),
         ("rows with which a feed begins", 0.0, "?snapshot=now"))  # fmt: skip


def run(bench: Bench) -> None:
    """See WHAT."""
    with running(bench.tmp / "mariadb", SERVER) as server:
        server.run(f"CREATE USER {USER}@127.0.0.1")
        server.run(f"GRANT ALL ON *.* TO {USER}@127.0.0.1")
        for name, updates, options in LOADS:
            arguments = (server.port, USER, ROWS, updates, options)
            rates: dict[str, list[float]] = {"feed": [], "executemany": []}
            with bench.remote(TableLoads, *arguments, **allocators.ENVIRON) as load:
                for number in range(bench.rounds + 1):
                    for way, found in rates.items():
                        load("empty")
                        before = proc_tree.cpu_seconds(load.pid) + proc_tree.cpu_seconds(server.pid)
                        rows = load(way)
                        spent = proc_tree.cpu_seconds(load.pid) + proc_tree.cpu_seconds(server.pid) - before
                        if number:  # the first one compiles
                            found.append(CORES * rows / spent)
            bench.figure(f"{name}: events, on two cores", statistics.median(rates["feed"]), "rows/s", AIM, "more")
            if not updates and "worker" in options:
                of = statistics.median(rates["executemany"])
                bench.figure("executemany: rows, on two cores", of, "rows/s", better="more")
        with bench.remote(
            TableLoads, server.port, USER, LAG_ROWS, 0.5, "?worker-count=4", 400, **allocators.ENVIRON
        ) as load:
            for way in ("empty", "feed", "empty"):
                load(way)  # the first one compiles
            bench.figure("99 of 100 parts are committed after", load("lag") / 1e6, "s", 2.0, "less")
