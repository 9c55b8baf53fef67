"""Converts texts so that comparing their bytes is comparing them by their collation. Pure.

Collations `_ci` ignore case and accents: texts are decomposed, accents are removed, and letters are in upper case.
Letters that only the weights of a collation make equal (`ø` and `o`, for example) differ here.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tistream.errors import InvalidRequest

_NO_PAD = frozenset({"binary", "utf8mb4_0900_bin", "utf8mb4_0900_ai_ci"})
_BIN = frozenset({"binary", "utf8mb4_0900_bin", "utf8mb4_bin", "utf8_bin", "ascii_bin", "latin1_bin"})
_GENERAL = frozenset({"utf8mb4_general_ci", "utf8_general_ci"})
_UCA = frozenset({"utf8mb4_unicode_ci", "utf8_unicode_ci", "utf8mb4_0900_ai_ci"})
_UNORDERED_BIN = frozenset({"gbk_bin", "gb18030_bin"})  # ordered by the bytes of their own charset


def comparable(texts: Any, collation: str, *, ordered: bool) -> Any:
    """Convert texts (an array or a scalar of large_string) so that equal texts have equal bytes. With `ordered`, their
    bytes also have the collation's order. Raises InvalidRequest for a collation for which that is not supported."""
    if ordered and (collation in _UCA or collation in _UNORDERED_BIN):
        raise InvalidRequest(f"texts of collation {collation} can be compared by =, <>, IN and LIKE only, not by order")
    if collation not in _NO_PAD:
        texts = pc.utf8_rtrim(texts, characters=" ")
    return folded(texts, collation)


def folded(texts: Any, collation: str) -> Any:
    """The texts without the differences of case and accents that the collation ignores. Raises InvalidRequest for an
    unknown collation."""
    if collation in _BIN or collation in _UNORDERED_BIN:
        return texts
    if collation not in _GENERAL and collation not in _UCA:
        raise InvalidRequest(
            f"texts of collation {collation} cannot be compared by a filter: use IS NULL, or leave the column out"
        )
    if pc.all(pc.string_is_ascii(_array(texts))).as_py() is not False:
        return pc.ascii_upper(texts)
    plain = pc.replace_substring_regex(pc.utf8_normalize(texts, "NFD"), r"\p{Mn}", "")
    plain = pc.replace_substring(plain, "ß", "S" if collation in _GENERAL else "SS")
    return pc.utf8_upper(plain)


def _array(texts: Any) -> Any:
    return pa.array([texts.as_py()], pa.large_string()) if isinstance(texts, pa.Scalar) else texts
