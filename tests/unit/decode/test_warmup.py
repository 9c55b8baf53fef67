"""The kernel that the warm-up compiles is the one that messages use: another type of an argument would be compiled
when the first event comes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tistream.decode import warm_messages
from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.kernels import render_kernel
from tistream.decode.kernels.render_kernel import Form


def test_messages_need_no_other_kernel_than_the_warm_one() -> None:
    warm_messages()
    texts, shown = pa.array(["a", "b"], pa.large_string()), np.array([True, False])
    quoted = LineGroup(
        '{"x":', [LineColumn("", Form.GO_QUOTED, texts)], np.array([1, -1], np.int64), optional=True, end="}"
    )
    sparse = LineGroup("{", [LineColumn(',"y":', Form.GO_ESCAPED, texts, tail="", shown=shown)], sparse=True, end="}")
    assert LineWriter(2, [quoted, sparse], ".").lines().to_pylist() == [b'{"x":"b"}{"y":"a"}.', b"{}."]
    assert len(render_kernel.render_rich.signatures) == 1  # type: ignore[attr-defined]
