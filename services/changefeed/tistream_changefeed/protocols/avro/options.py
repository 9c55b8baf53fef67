"""The options of the protocol avro."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

DECIMAL_MODES = ("precise", "string")
UNSIGNED_MODES = ("long", "string")


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """Options with TiCDC's names and defaults. `topic_of` returns the topic of (database, table); the names of subjects
    in the registry are derived from it. `keyspace` is the first part of the namespace of records."""

    topic_of: Callable[[str, str], str]
    decimal_handling_mode: str = "precise"
    bigint_unsigned_handling_mode: str = "long"
    enable_tidb_extension: bool = False
    keyspace: str = "default"

    def __post_init__(self) -> None:
        _one_of("avro-decimal-handling-mode", self.decimal_handling_mode, DECIMAL_MODES)
        _one_of("avro-bigint-unsigned-handling-mode", self.bigint_unsigned_handling_mode, UNSIGNED_MODES)

    @property
    def precise(self) -> bool:
        return self.decimal_handling_mode == "precise"

    @property
    def unsigned_as_text(self) -> bool:
        return self.bigint_unsigned_handling_mode == "string"


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}: set one of {', '.join(known)}")
