"""The options of the protocol csv."""

from __future__ import annotations

import re
from dataclasses import dataclass

BINARY_ENCODINGS = ("base64", "hex")
_DELIMITER_CHARS = 3
_IN_NUMBERS = re.compile(r"[0-9A-Za-z+\-./=]")


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """Options with the names and defaults of TiCDC's `[sink.csv]`. Raises ValueError for options with which the lines
    could not be parsed."""

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    terminator: str = "\r\n"
    include_commit_ts: bool = False
    output_old_value: bool = False
    binary_encoding_method: str = "base64"

    def __post_init__(self) -> None:
        if not 1 <= len(self.delimiter) <= _DELIMITER_CHARS or not self.delimiter.isascii():
            raise ValueError(f"csv delimiter is {self.delimiter!r}: set 1 to {_DELIMITER_CHARS} ASCII characters")
        if len(self.quote) > 1 or not self.quote.isascii():
            raise ValueError(f"csv quote is {self.quote!r}: set one ASCII character, or an empty text for none")
        if self.quote and self.quote in self.delimiter:
            raise ValueError(f"csv quote {self.quote!r} occurs in the delimiter {self.delimiter!r}: set another one")
        if any(char in "\r\n\\" for char in self.delimiter + self.quote):
            raise ValueError("csv delimiter and quote: line ends and backslashes are not allowed")
        if _IN_NUMBERS.search(self.delimiter):
            raise ValueError(f"csv delimiter is {self.delimiter!r}: set characters that no number and no base64 has")
        if self.binary_encoding_method not in BINARY_ENCODINGS:
            raise ValueError(
                f"csv binary-encoding-method is {self.binary_encoding_method!r}: set {' or '.join(BINARY_ENCODINGS)}"
            )
        if not self.terminator:
            raise ValueError("csv terminator is empty: set a text that ends each line")
