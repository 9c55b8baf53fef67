"""Object keys are built, and taken apart, in one file: where names are known to be harmless."""
# Attack: object keys built elsewhere than in one file

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOME = "shared/tistream/storage/layout.py"
# What stands in every key: a string with one of these makes a key, or a part of one.
PARTS = re.compile(r"data_change_buffer|committed/|schema/cluster|cluster-|Tenant-|(manifest|segment|pending)/")


def strings(tree: ast.AST) -> list[str]:
    """Those that are no docstrings; an f-string as its fixed parts."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]


def makers(root: Path) -> set[str]:
    found = set()
    for folder in ("shared", "services", "simulator", "tools"):
        for path in (root / folder).rglob("*.py"):
            source = path.read_text()
            if PARTS.search(source) and any(PARTS.search(text) for text in strings(ast.parse(source))):
                found.add(str(path.relative_to(root)))
    return found


def test_only_one_file_makes_keys() -> None:
    assert makers(ROOT) == {HOME}


def test_a_file_that_made_one_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "services").mkdir()
    bad = 'def key(t):\n    """cluster-7."""\n    return f"schema/cluster-{t}/floor"\n'
    (tmp_path / "services" / "bad.py").write_text(bad)
    (tmp_path / "services" / "good.py").write_text('def key(t):\n    """Of cluster-7."""\n    return t\n')
    assert makers(tmp_path) == {"services/bad.py"}
