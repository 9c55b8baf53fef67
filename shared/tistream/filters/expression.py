"""SQL expressions over the columns of a row, in MySQL's semantics. Pure.

Accepted: columns, numbers, quoted texts, TRUE, FALSE, NULL; comparisons, `<=>`, IN, BETWEEN, LIKE, IS [NOT] NULL, IS
[NOT] TRUE or FALSE; AND, OR, NOT; `+`, `-`, `*`, `/` of floating-point numbers, `DIV` and `%` of integers. Everything
else is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tistream.arrays import Bools
from tistream.errors import InvalidRequest
from tistream.filters import arithmetic
from tistream.filters import comparison as compared
from tistream.filters.operand import NULL, Operand, OperandType, of_column, of_number, of_text
from tistream.near import did_you_mean
from tistream.schema.tidb.table import Column, Table
from tistream.schema.visible import fold

_MISSING = re.compile(r"Required keyword: '\w+' missing for <class '(?:\w+\.)*(\w+)'>")
CHARS_MAX = 16_384
DEPTH_MAX = 64
MEMBERS_MAX = 4_096

_Node = TypeVar("_Node", bound=exp.Expr)
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: compared.EQUAL,
    exp.NEQ: compared.UNEQUAL,
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
_ARITHMETIC: dict[type[exp.Expr], Callable[[Operand, Operand], Operand]] = {
    exp.Add: arithmetic.add,
    exp.Sub: arithmetic.subtract,
    exp.Mul: arithmetic.multiply,
    exp.Div: arithmetic.divide,
    exp.IntDiv: arithmetic.quotient,
    exp.Mod: arithmetic.remainder,
}
_MEMBERS: dict[type[exp.Expr], frozenset[str]] = {  # what else may be set in a node besides `this` and `expression`
    exp.In: frozenset({"expressions"}),
    exp.Between: frozenset({"low", "high"}),
    exp.Like: frozenset({"negate"}),
    exp.Literal: frozenset({"is_string"}),
    exp.Div: frozenset({"typed", "safe"}),
}


@dataclass(frozen=True, slots=True)
class Expression:
    """One parsed expression. `text` is as the user wrote it."""

    text: str
    tree: exp.Expr

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Parse an expression. Raises InvalidRequest, which names the expression and what is not supported in it."""
        if len(text) > CHARS_MAX:
            raise InvalidRequest(
                f"expression {text[:40]!r}… has {len(text)} characters: at most {CHARS_MAX} are accepted"
            )
        try:
            found = sqlglot.parse(text, dialect="mysql")
        except (SqlglotError, RecursionError) as error:
            reason = _shown(error) if isinstance(error, SqlglotError) else "it is nested too deeply"
            raise InvalidRequest(f"expression {text!r} cannot be parsed: {reason}") from None
        tree = found[0] if len(found) == 1 else None
        if tree is None:
            raise InvalidRequest(f"expression {text!r}: one condition is needed, such as `id > 5`")
        try:
            _check(tree, 0)
        except InvalidRequest as error:
            raise InvalidRequest(f"expression {text!r}: {error}") from None
        return cls(text, tree)

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table that the expression uses. Raises InvalidRequest if the table lacks one, or if one is
        virtual, because its values are not in the changes."""
        known = {fold(column.name): column for column in table.columns if column.public and not column.hidden}
        out: dict[str, Column] = {}
        for node in self.tree.find_all(exp.Column):
            column = known.get(fold(node.name))
            if column is None:
                shown = [one.name for one in table.visible_columns]
                raise InvalidRequest(
                    f"expression {self.text!r}: table {table.name!r} has no column {node.name!r}"
                    f"{did_you_mean(node.name, shown)}: correct it, or leave out the tables that do not have it"
                )
            if not column.visible:
                raise InvalidRequest(
                    f"expression {self.text!r}: column {node.name!r} of table {table.name!r} is virtual, so its values"
                    " are not in the changes: use the columns that it is made of"
                )
            out[fold(node.name)] = column
        return tuple(out.values())

    def fits(self, table: Table, arrays: Callable[[Column], Any]) -> None:
        """Check the types of the expression for a table. `arrays` returns an empty array of a column's decoded type.
        Raises InvalidRequest."""
        columns = self.columns(table)
        self.true_of(columns, [arrays(column) for column in columns], 0)

    def true_of(self, columns: Sequence[Column], arrays: Sequence[Any], rows: int) -> Bools:
        """For each row, whether the expression is true, not false and not NULL. `arrays` are the decoded values of
        `columns`. Raises InvalidRequest if their types do not fit."""
        operands = {fold(one.name): of_column(one, array) for one, array in zip(columns, arrays, strict=True)}
        try:
            found = compared.truth(_evaluate(self.tree, operands))
        except InvalidRequest as error:
            raise InvalidRequest(f"expression {self.text!r}: {error}") from None
        except pa.ArrowException as error:
            raise InvalidRequest(f"expression {self.text!r} cannot be evaluated: {error}") from None
        if isinstance(found, pa.Scalar):
            found = pa.array([found.as_py()] * rows, pa.bool_())
        out: Bools = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
        return out.astype(bool)


def _shown(error: SqlglotError) -> str:
    """The first line of a parser's error, without the names of the parser's classes."""
    return _MISSING.sub(r"an operand of \1 is missing", str(error).splitlines()[0])


def _check(node: exp.Expr, depth: int) -> None:
    """Check that every node of the syntax tree is supported. Raises InvalidRequest for the first one that is not."""
    if depth > DEPTH_MAX:
        raise InvalidRequest(
            f"it is nested more than {DEPTH_MAX} levels deep, which is the maximum: cut it into several rules"
        )
    if node.comments:
        raise InvalidRequest("comments are not supported: remove them")
    kind = type(node)
    if kind not in _EVALUATE:
        raise InvalidRequest(
            f"{_named(node)} is not supported: use comparisons, AND, OR, NOT, IN, LIKE, BETWEEN and IS NULL"
        )
    allowed = {"this", "expression"} | _MEMBERS.get(kind, frozenset())
    extra = next((name for name, value in node.args.items() if name not in allowed and value), None)
    if extra is not None:
        raise InvalidRequest(f"{_named(node)}: {extra} is not supported")
    if isinstance(node, exp.Column):
        return
    if isinstance(node, exp.In) and len(node.expressions) > MEMBERS_MAX:
        raise InvalidRequest(
            f"{_named(node)} has {len(node.expressions)} values: at most {MEMBERS_MAX} are accepted; ask for a part "
            "of them"
        )
    if isinstance(node, exp.Escape) and not isinstance(node.this, exp.Like):
        raise InvalidRequest("ESCAPE is supported after LIKE only")
    operands = node.flatten(unnest=False) if isinstance(node, (exp.And, exp.Or)) else node.iter_expressions()
    for child in operands:
        _check(child, depth + 1)


def _named(node: exp.Expr) -> str:
    """The kind and the text of a node of the syntax tree, for an error text."""
    kind = node.sql_name() if isinstance(node, exp.Func) else type(node).__name__.upper()
    return f"{kind} in {node.sql(dialect='mysql')[:60]!r}"


Columns = Mapping[str, Operand]


def _evaluate(node: exp.Expr, columns: Columns) -> Operand:
    return _EVALUATE[type(node)](node, columns)


def _column(node: Any, columns: Columns) -> Operand:
    return columns[fold(node.name)]


def _literal(node: Any, _: Columns) -> Operand:
    return of_text(node.this) if node.is_string else of_number(node.this)


def _boolean(node: Any, _: Columns) -> Operand:
    return Operand(OperandType.BOOL, pa.scalar(bool(node.this)), "TRUE" if node.this else "FALSE")


def _null(_: Any, __: Columns) -> Operand:
    return NULL


def _paren(node: Any, columns: Columns) -> Operand:
    return _evaluate(node.this, columns)


def _not(node: Any, columns: Columns) -> Operand:
    return _inverted(_evaluate(node.this, columns))


def _inverted(operand: Operand) -> Operand:
    return Operand(OperandType.BOOL, pc.invert(compared.truth(operand)), f"NOT {operand.name}")


def _joined(node: Any, columns: Columns) -> Operand:
    join = pc.and_kleene if isinstance(node, exp.And) else pc.or_kleene
    first, *rest = (compared.truth(_evaluate(one, columns)) for one in node.flatten(unnest=False))
    for other in rest:
        first = join(first, other)
    return Operand(OperandType.BOOL, first, type(node).__name__.upper())


def _comparison(node: Any, columns: Columns) -> Operand:
    how = _COMPARISONS[type(node)]
    return compared.compare(how, _evaluate(node.this, columns), _evaluate(node.expression, columns))


def _null_safe(node: Any, columns: Columns) -> Operand:
    return compared.null_safe_equal(_evaluate(node.this, columns), _evaluate(node.expression, columns))


def _is(node: Any, columns: Columns) -> Operand:
    operand = _evaluate(node.this, columns)
    if isinstance(node.expression, exp.Null):
        return compared.is_null(operand)
    if not isinstance(node.expression, exp.Boolean):
        raise InvalidRequest(f"{_named(node)}: only IS NULL, IS TRUE and IS FALSE are supported")
    found = compared.truth(operand)
    shown = pc.fill_null(found if node.expression.this else pc.invert(found), False)
    return Operand(OperandType.BOOL, shown, f"{operand.name} IS")


def _in(node: Any, columns: Columns) -> Operand:
    return compared.member_of(_evaluate(node.this, columns), [_evaluate(one, columns) for one in node.expressions])


def _between(node: Any, columns: Columns) -> Operand:
    operand = _evaluate(node.this, columns)
    low = compared.compare("greater_equal", operand, _evaluate(node.args["low"], columns))
    high = compared.compare("less_equal", operand, _evaluate(node.args["high"], columns))
    return Operand(OperandType.BOOL, pc.and_kleene(low.values, high.values), f"{operand.name} BETWEEN")


def _like(node: Any, columns: Columns, escape: str = "\\") -> Operand:
    pattern = _evaluate(node.expression, columns)
    if pattern.sort is OperandType.NULL:
        return NULL
    if pattern.sort is not OperandType.TEXT or not pattern.constant:
        raise InvalidRequest(f"{pattern.name}: the pattern of LIKE must be a quoted text")
    found = compared.like(_evaluate(node.this, columns), pattern.values.as_py(), escape)
    return _inverted(found) if node.args.get("negate") else found


def _escape(node: Any, columns: Columns) -> Operand:
    escape = _evaluate(node.expression, columns)
    text = escape.values.as_py() if escape.sort is OperandType.TEXT and escape.constant else None
    if text is None or len(text) > 1:
        raise InvalidRequest(f"{escape.name}: ESCAPE needs a quoted character")
    return _like(node.this, columns, text)


def _calculated(node: Any, columns: Columns) -> Operand:
    calculate = _ARITHMETIC[type(node)]
    return calculate(_evaluate(node.this, columns), _evaluate(node.expression, columns))


def _negated(node: Any, columns: Columns) -> Operand:
    return arithmetic.negate(_evaluate(node.this, columns))


_EVALUATE: dict[type[exp.Expr], Callable[[Any, Columns], Operand]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Paren: _paren,
    exp.Not: _not,
    exp.And: _joined,
    exp.Or: _joined,
    exp.NullSafeEQ: _null_safe,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.Escape: _escape,
    exp.Neg: _negated,
    **dict.fromkeys(_COMPARISONS, _comparison),
    **dict.fromkeys(_ARITHMETIC, _calculated),
}
