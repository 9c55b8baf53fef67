"""Strict types of query parameters, each with its schema in the OpenAPI document.

Pydantic's own numbers and booleans also accept "+5", "1_000", " 5 ", "5.0", "yes" and "on".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from tistream.model.ts import MAX_TS
from tistream.wire.changes import TS_PATTERN

KEY_MAX_BYTES = 16_384
SHOWN_MAX = 40  # characters of a wrong value that an answer repeats
_DECIMAL = re.compile(r"[0-9]{1,40}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")


@dataclass(frozen=True, slots=True)
class Decimal:
    """Annotation of an int that is written in decimal digits, from `low` to `high`, both inclusive. With `pattern` the
    OpenAPI document describes it as a string of this form, because the number may not fit into a client's integers."""

    low: int
    high: int
    pattern: str | None = None

    def parse(self, text: object) -> int:
        """Parse decimal digits as an int. Raises ValueError."""
        if not isinstance(text, str) or not _DECIMAL.fullmatch(text) or not text.isascii():
            raise ValueError(f"{str(text)[:SHOWN_MAX]!r} is not a decimal number from {self.low} to {self.high}")
        number = int(text)
        if not self.low <= number <= self.high:
            raise ValueError(f"{text} does not lie from {self.low} to {self.high}")
        return number

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: object) -> dict[str, Any]:
        if self.pattern is not None:
            return {"type": "string", "pattern": self.pattern}
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


class TsOrText(Decimal):
    """Annotation of a parameter that is either a ts in decimal digits, which becomes an int, or another text, which the
    route parses as a time."""

    def parse(self, text: object) -> int:
        """Parse decimal digits as an int, and return any other text unchanged. Raises ValueError for a number that is
        not in range."""
        if isinstance(text, str) and text and not _DECIMAL.fullmatch(text):
            return text  # type: ignore[return-value]
        return Decimal.parse(self, text)


def _flag(text: object) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{str(text)[:SHOWN_MAX]!r} is neither true nor false")
    return text == "true"


def _hex(text: object) -> bytes:
    if not isinstance(text, str) or not _HEX.fullmatch(text) or not text.isascii():
        raise ValueError(f"{str(text)[:SHOWN_MAX]!r} is not hexadecimal: write two digits for each byte")
    if len(text) > 2 * KEY_MAX_BYTES:
        raise ValueError(f"has {len(text) // 2} bytes, and a key has at most {KEY_MAX_BYTES}")
    return bytes.fromhex(text)


def _not_empty(text: str | None) -> str | None:
    if not text:
        raise ValueError("is empty: give a value, or leave it out")
    return text


# An optional parameter is None if it is left out, which no value says; so the schemas have no null.
OptionalTs = Annotated[int | None, Decimal(0, MAX_TS, TS_PATTERN)]
OptionalTsOrText = Annotated[int | str | None, TsOrText(0, MAX_TS, TS_PATTERN)]
OptionalText = Annotated[str | None, AfterValidator(_not_empty), WithJsonSchema({"type": "string", "minLength": 1})]
Flag = Annotated[bool, BeforeValidator(_flag)]
HexKey = Annotated[bytes, BeforeValidator(_hex), WithJsonSchema({"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"})]
