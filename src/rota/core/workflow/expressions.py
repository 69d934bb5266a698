"""Conditions of steps: a small expression language over the run's input and the results of steps.

    rows.count > 0 and input.region in ["eu", "us"]

Names are steps, whose results they stand for, and `input`. `a.b` and `a["b"]` are members of objects,
`a[0]` of lists; one that isn't there is null. There are literals, lists, comparisons, `and`, `or`,
`not`, `in`, + - * / % on numbers, and the functions len, min, max, sum and abs. The text is parsed,
never run as Python, and its cost is bounded by its length and by the size of the values.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from rota.errors import ConfigError, InvalidArguments

LONGEST = 1_000
_LARGEST = 2**63

Values: TypeAlias = Mapping[str, Any]
Evaluate: TypeAlias = Callable[[Values], Any]

_CONSTANTS = {"true": True, "false": False, "null": None}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda a, b: b is not None and a in b, ast.NotIn: lambda a, b: b is None or a not in b,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}  # fmt: skip
_INSTEAD = {"&&": "and", "||": "or", "=": "==", "!": "not"}  # what other languages write
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "min": min, "max": max, "sum": sum, "abs": abs
}  # fmt: skip


class Condition:
    """A parsed condition. Raises `ConfigError`, with the column, for a text that isn't one."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ConfigError("the condition is empty: leave `when` out, or write a comparison")
        if len(text) > LONGEST:
            raise ConfigError(
                f"the condition has {len(text):,} characters, the limit is {LONGEST:,}"
            )
        self.text = text.strip().replace("\n", " ")  # columns are those of one line
        self.names: set[str] = set()
        try:
            self._evaluate = self._compile(ast.parse(self.text, mode="eval").body)
        except SyntaxError as error:
            raise self._refused(*self._located(error)) from None
        except (RecursionError, MemoryError, ValueError) as error:
            raise self._refused(1, str(error) or "it is nested too deeply") from None

    def holds(self, values: Values) -> bool:
        """Return whether it holds. Raises `InvalidArguments` where types don't fit."""
        try:
            return bool(self._evaluate(values))
        except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise InvalidArguments(
                f"the condition {self.text!r} can't be judged: {error}"
            ) from None

    def _located(self, error: SyntaxError) -> tuple[int, str]:
        """Return the column of what can't be parsed, and what is wrong there."""
        if error.msg != "invalid syntax":
            return error.offset or 1, error.msg
        if not error.offset:
            return len(self.text) + 1, "it ends where something should follow"
        rest = self.text[error.offset - 1 :]
        for written, instead in _INSTEAD.items():
            if rest.startswith(written) or self.text[error.offset - 2 :].startswith(written):
                return error.offset, f"write {instead!r} instead of {written!r}"
        return error.offset, f"{rest.split()[0]!r} can't stand here"

    def _refused(self, column: int, problem: str) -> ConfigError:
        return ConfigError(f"the condition {self.text!r}, column {column}: {problem}")

    def _compile(self, node: ast.expr) -> Evaluate:
        compile_node = _COMPILERS.get(type(node))
        if compile_node is None:
            raise self._refused(
                node.col_offset + 1, "use names, comparisons, and, or, not, in, + - * / %"
            )
        return compile_node(self, node)

    def _constant(self, node: ast.Constant) -> Evaluate:
        value = node.value
        if not isinstance(value, str | int | float | bool | None):
            raise self._refused(node.col_offset + 1, "use text, numbers, true, false or null")
        return lambda values: value

    def _name(self, node: ast.Name) -> Evaluate:
        name = node.id
        if name in _CONSTANTS:
            return lambda values: _CONSTANTS[name]
        self.names.add(name)
        return lambda values: values.get(name)

    def _attribute(self, node: ast.Attribute) -> Evaluate:
        inner, key = self._compile(node.value), node.attr
        return lambda values: _member(inner(values), key)

    def _subscript(self, node: ast.Subscript) -> Evaluate:
        inner, key = self._compile(node.value), self._compile(node.slice)
        return lambda values: _member(inner(values), key(values))

    def _list(self, node: ast.List | ast.Tuple) -> Evaluate:
        members = [self._compile(each) for each in node.elts]
        return lambda values: [member(values) for member in members]

    def _unary(self, node: ast.UnaryOp) -> Evaluate:
        operand = self._compile(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda values: not operand(values)
        if isinstance(node.op, ast.USub):
            return lambda values: -_number(operand(values))
        raise self._refused(node.col_offset + 1, "that operator isn't known")

    def _arithmetic(self, node: ast.BinOp) -> Evaluate:
        apply = _ARITHMETIC.get(type(node.op))
        if apply is None:
            raise self._refused(node.col_offset + 1, "the operators on numbers are + - * / %")
        left, right = self._compile(node.left), self._compile(node.right)

        def evaluate(values: Values) -> Any:
            result = apply(_number(left(values)), _number(right(values)))
            if abs(result) > _LARGEST:
                raise ValueError("a number became too large")
            return result

        return evaluate

    def _boolean(self, node: ast.BoolOp) -> Evaluate:
        parts = [self._compile(each) for each in node.values]
        decide = all if isinstance(node.op, ast.And) else any
        return lambda values: decide(part(values) for part in parts)

    def _compare(self, node: ast.Compare) -> Evaluate:
        compares = [_COMPARE.get(type(each)) for each in node.ops]
        operands = [self._compile(each) for each in (node.left, *node.comparators)]
        if None in compares:
            raise self._refused(
                node.col_offset + 1, "the comparisons are == != < <= > >= in, not in"
            )

        def evaluate(values: Values) -> bool:
            compared = [operand(values) for operand in operands]
            return all(
                holds is not None and holds(one, two)
                for holds, one, two in zip(compares, compared, compared[1:], strict=False)
            )

        return evaluate

    def _call(self, node: ast.Call) -> Evaluate:
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called not in _FUNCTIONS or node.keywords:
            raise self._refused(
                node.col_offset + 1, f"the only functions are {', '.join(_FUNCTIONS)}"
            )
        function = _FUNCTIONS[called]
        arguments = [self._compile(each) for each in node.args]
        return lambda values: function(*(argument(values) for argument in arguments))


_COMPILERS: dict[type[ast.expr], Callable[[Condition, Any], Evaluate]] = {
    ast.Constant: Condition._constant, ast.Name: Condition._name,
    ast.Attribute: Condition._attribute, ast.Subscript: Condition._subscript,
    ast.List: Condition._list, ast.Tuple: Condition._list, ast.UnaryOp: Condition._unary,
    ast.BinOp: Condition._arithmetic, ast.BoolOp: Condition._boolean,
    ast.Compare: Condition._compare, ast.Call: Condition._call,
}  # fmt: skip


def _member(value: Any, key: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(key) if isinstance(key, str) else None
    if isinstance(value, Sequence) and not isinstance(value, str) and type(key) is int:
        return value[key] if -len(value) <= key < len(value) else None
    return None


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value
