"""The options of the protocol debezium."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DebeziumOptions:
    """Options with TiCDC's names and defaults.

    With `compatible` a NULL in a column with a default is sent as the default, as TiCDC does; otherwise it is null.
    """

    cluster: str = "default"
    debezium_disable_schema: bool = False
    enable_tidb_extension: bool = False
    output_old_value: bool = True
    compatible: bool = False
