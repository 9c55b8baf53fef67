"""Lines of optional and sparse groups, and lines that are longer than expected."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.kernels.render_kernel import Form

TEXTS = pa.array(["a", None, "c", "d"], pa.large_string())
NUMBERS = pa.array([1, 2, 3, 4])


def lines(*groups: LineGroup, count: int = 4) -> list[str]:
    return [line.decode() for line in LineWriter(count, groups, ";").lines().to_pylist()]


def test_an_optional_group_is_left_out_with_its_texts() -> None:
    at = np.array([3, -1, 0, -1])
    parts = [LineColumn("n=", Form.INT, NUMBERS)]
    assert lines(LineGroup("<", parts, at, optional=True, end=">")) == ["<n=4>;", ";", "<n=1>;", ";"]
    assert lines(LineGroup("<", parts, at, end=">")) == ["<n=4>;", "<null>;", "<n=1>;", "<null>;"]
    assert lines(LineGroup("<", parts, at, silent=True, end=">")) == ["<n=4>;", "<>;", "<n=1>;", "<>;"]


def test_a_sparse_group_has_the_shown_parts_without_the_first_comma() -> None:
    shown = [np.array(mask) for mask in ([True, False, True, False], [True, True, False, False])]
    parts = [
        LineColumn(",t:", Form.GO_ESCAPED, TEXTS, "|", shown[0]),
        LineColumn(",n:", Form.INT, NUMBERS, "|", shown[1]),
    ]
    assert lines(LineGroup("[", parts, sparse=True, end="]")) == ['[t:"a"|,n:1|];', "[n:2|];", '[t:"c"|];', "[];"]
    every = [LineColumn(",t:", Form.GO_ESCAPED, TEXTS), LineColumn(",n:", Form.INT, NUMBERS)]
    assert lines(LineGroup("", every, sparse=True, brackets=True))[1] == "{t:null,n:2};"
    with pytest.raises(AssertionError, match="sparse"):
        lines(LineGroup("", [LineColumn("", Form.INT, NUMBERS, "tail")]))


@pytest.mark.parametrize("form", [Form.GO_ESCAPED, Form.HTML_CODED, Form.LATIN1])
def test_lines_that_grow_sixfold_are_whole(form: Form) -> None:
    """They take several pieces, and some a piece of their own."""
    texts = ["\x01" * size for size in (0, 3, 40_000, 1, 20_000, 7)]
    kind = pa.large_binary() if form is Form.LATIN1 else pa.large_string()
    array = pa.array([text.encode() if form is Form.LATIN1 else text for text in texts], kind)
    expected = ['"' + "\\u0001" * len(text) + '";' for text in texts]
    assert lines(LineGroup("", [LineColumn("", form, array)]), count=len(texts)) == expected


def test_long_numbers_are_whole() -> None:
    values = [1.7976931348623157e308, -5e-324, 2.2250738585072014e-308, -0.0, float("nan")]
    found = lines(*[LineGroup("", [LineColumn("", Form.DOUBLE_TEXT, pa.array(values))])] * 3, count=len(values))
    plain = ["17976931348623157" + "0" * 292, "-0." + "0" * 323 + "5", "0." + "0" * 307 + "22250738585072014", "-0"]
    assert found == [*(f'"{text}"' * 3 + ";" for text in plain), "nullnullnull;"]
