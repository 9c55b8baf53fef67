"""The server that a MySQL sink writes to, and the names of what the sink stores there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tistream.schema.tidb.create_table import Dialect
from tistream.secrets.references import filled
from tistream_changefeed.config.feed_config import MySqlConfig

PROGRESS, DDLS, LETTERS = "`tistream`.`progress`", "`tistream`.`ddl`", "`tistream`.`dead_letters`"
WINDOWS = "`tistream`.`windows`"
WINDOWS_KEPT = 1_000  # of a shard, the newest ones
IDLE_S = 60  # after which the server closes an idle connection, and frees the locks of a holder that hangs
TABLES = (
    "CREATE DATABASE IF NOT EXISTS `tistream`",
    f"""CREATE TABLE IF NOT EXISTS {PROGRESS} (
  `feed` VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `slot` INT NOT NULL,
  `generation` BIGINT NOT NULL,
  `epoch` BIGINT NOT NULL,
  `holder` VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NULL,
  `begun` TEXT CHARACTER SET ascii COLLATE ascii_bin NULL,
  `progress` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  PRIMARY KEY (`feed`, `slot`)
) ENGINE=InnoDB""",
    f"""CREATE TABLE IF NOT EXISTS {DDLS} (
  `feed` VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `generation` BIGINT NOT NULL,
  `job_id` BIGINT NOT NULL,
  `step` INT NOT NULL,
  `commit_ts` BIGINT NOT NULL,
  `done` TINYINT NOT NULL,
  `before` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `statement` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (`feed`, `generation`, `job_id`, `step`)
) ENGINE=InnoDB""",
    f"""CREATE TABLE IF NOT EXISTS {LETTERS} (
  `id` BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  `feed` VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `table` TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `letter` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE=InnoDB""",
    f"""CREATE TABLE IF NOT EXISTS {WINDOWS} (
  `feed` VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `generation` BIGINT NOT NULL,
  `number` BIGINT NOT NULL,
  `version` INT NOT NULL,
  `window` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (`feed`, `generation`, `number`)
) ENGINE=InnoDB""",
)
"""The statements that create what the sink stores. A row of `progress` is that of one slot: `generation` and `epoch`
are the fence; `holder` is the name of the sink that has taken the slot; `begun` is the cursor after the newest window
of which the slot has written its part; `progress` is the record of the feed, which only the first slot has, and writes
last. A row of `windows` has the fingerprints of the events of one transaction (fingerprints/windows.py, rows.py), and
is written with the record. `number` counts them; `version` is that of the hashes."""
HAS_HOLDER = (
    "SELECT 1 FROM information_schema.columns "
    "WHERE table_schema = 'tistream' AND table_name = 'progress' AND column_name = 'holder'"
)
ADD_HOLDER = f"ALTER TABLE {PROGRESS} ADD COLUMN `holder` VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NULL"
"""The statement that adds what a table of an earlier release lacks."""
SYNCED = "`tidb_cdc`.`syncpoint_v1`"
SYNC_TABLES = (
    "CREATE DATABASE IF NOT EXISTS `tidb_cdc`",
    f"""CREATE TABLE IF NOT EXISTS {SYNCED} (
  `ticdc_cluster_id` VARCHAR(255),
  `changefeed` VARCHAR(255),
  `primary_ts` VARCHAR(18),
  `secondary_ts` VARCHAR(18),
  `created_at` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  INDEX (`created_at`),
  PRIMARY KEY (`changefeed`, `primary_ts`)
)""",
)
"""The statements that create the table of sync points, as TiCDC does."""


def secondary_ts(dialect: Dialect) -> str:
    """The SQL expression for the server's present ts. A server without a TSO gives its clock's time in the form of a
    TSO."""
    return "@@tidb_current_ts" if dialect is Dialect.TIDB else "FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000) << 18"


@dataclass(frozen=True, slots=True)
class MySqlServer:
    """A server, and how the sink writes to it. `slots`: how many connections write side by side. `safe`: rows are
    always put by REPLACE. `sync_retention_ms`: how long sync points are kept; None: none are stored. After parsing,
    `password` and the PEM texts may be references to secrets."""

    host: str
    port: int
    user: str
    password: str | None = field(repr=False)
    slots: int
    safe: bool
    tls: bool
    ca: str | None = field(default=None, repr=False)
    cert: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    sync_retention_ms: int | None = None

    @property
    def where(self) -> str:
        """The name of the server in errors."""
        return f"mysql://{self.user}@{self.address}"

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    def with_secrets(self, values: Mapping[str, str]) -> MySqlServer:
        """The server with the values of secrets in place of references."""
        password, ca, cert, key = (
            None if text is None else filled(text, values) for text in (self.password, self.ca, self.cert, self.key)
        )
        return replace(self, password=password, ca=ca, cert=cert, key=key)


def server_of(config: MySqlConfig, scheme: str) -> MySqlServer:
    """The server that a configuration describes. `scheme`: that of the sink URI."""
    return MySqlServer(
        config.host,
        config.port,
        config.user,
        config.password,
        1 if config.atomicity != "none" else config.workers,
        config.safe_mode,
        scheme.endswith("+ssl") or config.ca is not None or config.cert is not None,
        config.ca,
        config.cert,
        config.key,
        config.sync_retention_ms if config.sync_points else None,
    )
