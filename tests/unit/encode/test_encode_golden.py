"""Rows of a real TiDB, shown as SQL shows them and encoded again: they decode to the same, most to the same bytes."""

from __future__ import annotations

import pytest

from support.sql_texts import golden_tables, key_texts, shown_texts
from tistream.decode.rows import decode_rows
from tistream.encode.rows import encode_keys, encode_values
from tistream.encode.table_encoding import KeyForm, encoding_of


@pytest.mark.parametrize(("name", "least"), [("everything", 400), ("large", 200)])
def test_golden_rows_encode_to_what_decodes_equal(name: str, least: int) -> None:
    same, rows = 0, 0
    forms = set()
    for table, physical_id, keys, values in golden_tables(name):
        encoding = encoding_of(table, new_collations=True)
        forms.add(encoding.form)
        columns = table.visible_columns
        before = decode_rows(table, columns, keys, values)
        assert before.errors == {}
        texts = shown_texts(table, keys, values)
        again = encode_values(encoding, texts, len(keys))
        if encoding.form is not KeyForm.UPSTREAM:
            assert (
                encode_keys(encoding, physical_id, key_texts(encoding, keys, texts), len(keys)).to_pylist()
                == keys.to_pylist()
            )
        after = decode_rows(table, columns, keys, again)
        assert after.errors == {}
        assert after.batch.equals(before.batch), table.name
        rows += len(keys)
        same += sum(one == other for one, other in zip(again.to_pylist(), values.to_pylist(), strict=True))
    assert {KeyForm.INT, KeyForm.COMMON, KeyForm.ROWID} <= forms or name != "everything"
    assert same > least, (same, rows)
