"""Read YAML as nodes with positions, and collect all errors in them.

Only plain YAML is read: no tags of programming languages, no dates (they stay text), and only
``true`` and ``false`` are booleans, so that the country ``NO`` stays a text. Anchors, aliases and
``<<`` work; a document that aliases blow up, that contains itself or is nested too deeply is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import yaml

from rota.errors import ConfigError

MAX_BYTES = 1_000_000
_MAX_DEPTH = 100
_MAX_VALUES = 100_000
_TAG = "tag:yaml.org,2002:"
_PLAIN = {f"{_TAG}{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null")}
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc] # the same in C, where there is one
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - how PyYAML wants it


for _kind, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"^(?:{_pattern})$"), list(_first))


class Place(NamedTuple):
    """The start of a node, counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problems:
    """Collects all errors of a set of files."""

    def __init__(self) -> None:
        self._found: list[tuple[Place, str, str]] = []
        self._values = 0

    def add(self, place: Place, path: str, message: str) -> None:
        problem = (place, path, message)
        if problem not in self._found:  # an alias is looked at wherever it is used
            self._found.append(problem)

    def raise_if_any(self) -> None:
        if self._found:
            lines = (
                f"{place}: {path}: {message}" if path else f"{place}: {message}"
                for place, path, message in sorted(self._found)
            )
            raise ConfigError("\n".join(lines))

    def count_value(self) -> bool:
        """Count a value, and return whether the limit holds: aliases make many values of few."""
        self._values += 1
        return self._values <= _MAX_VALUES


class Value:
    """A node of a file, with the path that leads to it."""

    def __init__(self, node: yaml.Node, file: str, path: str, problems: Problems) -> None:
        self.node = node
        self.file = file
        self.path = path
        self.problems = problems

    @property
    def place(self) -> Place:
        mark: Any = self.node.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1)

    def wrong(self, message: str) -> None:
        self.problems.add(self.place, self.path, message)

    def _inner(self, node: yaml.Node, name: str) -> Value:
        path = f"{self.path}.{name}" if self.path else name
        return Value(node, self.file, path, self.problems)

    @property
    def is_null(self) -> bool:
        return bool(self.node.tag == f"{_TAG}null")

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_sequence(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def text(self) -> str | None:
        """Return a scalar as it is written; otherwise report an error and return None."""
        if not isinstance(self.node, yaml.ScalarNode) or self.is_null:
            self.wrong(f"must be a text, not {self._kind()}")
            return None
        text = str(self.node.value)
        if bad := re.search("[\0\ud800-\udfff]", text):
            self.wrong(f"has the character {bad[0]!r}, which can't be stored")
            return None
        return text

    def _kind(self) -> str:
        if self.is_null:
            return "empty"
        return "a mapping" if self.is_mapping else "a list"

    def entries(self, known: Collection[str] | None = None) -> dict[str, Value]:
        """Return a mapping's values by key. With `known`, other keys are errors."""
        if self.is_null:
            return {}
        if not self.is_mapping:
            self.wrong("must be a mapping, with lines such as `name: value`")
            return {}
        own: dict[str, Value] = {}
        merged: dict[str, Value] = {}
        for key, node in self.node.value:
            if key.tag == f"{_TAG}merge":
                merged.update(self._merge(node))
                continue
            name = self._inner(key, "?").text()
            if name is None:
                continue
            inner = self._inner(node, name)
            if name in own:
                self._inner(key, name).wrong("is there twice")
            elif known is not None and name not in known and not name.startswith("x-"):
                self._inner(key, name).wrong(_unknown(name, known))
            else:
                own[name] = inner
                inner.key = self._inner(key, name)
        return {**merged, **own}

    key: Value | None = None  # of a mapping's value

    def _merge(self, node: yaml.Node) -> dict[str, Value]:
        """Return the entries that `<<` merges; of several mappings the first wins."""
        inner = self._inner(node, "<<")
        found: dict[str, Value] = {}
        for each in reversed([inner] if inner.is_mapping else list(inner.items())):
            if not each.is_mapping:
                each.wrong("must be a mapping, or a list of them")
            for name, value in each.entries().items():
                path = f"{self.path}.{name}" if self.path else name
                found[name] = Value(value.node, self.file, path, self.problems)
        return found

    def items(self) -> Iterator[Value]:
        """Yield a list's values; a single value is a list of one."""
        if not self.is_sequence:
            yield self
            return
        for number, node in enumerate(self.node.value):
            yield Value(node, self.file, f"{self.path}[{number}]", self.problems)

    def data(self) -> Any:
        """Return the value as dicts, lists, texts and numbers."""
        if not self.problems.count_value():
            self.wrong(f"has over {_MAX_VALUES:,} values, aliases counted")
            return None
        if self.is_mapping:
            return {name: value.data() for name, value in self.entries().items()}
        if self.is_sequence:
            return [value.data() for value in self.items()]
        return self._scalar()

    def _scalar(self) -> Any:
        if self.is_null:
            return None
        text = self.text()
        if text is None:
            return None
        match self.node.tag.removeprefix(_TAG):
            case "str" | "merge":
                return text
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" | "float" as kind:
                return self._number(kind, text)
        self.wrong(f"{text[:40]!r} is neither true nor false")
        return None

    def _number(self, kind: str, text: str) -> int | float | None:
        try:
            if kind == "float":
                return float(text)
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        except ValueError:
            self.wrong(f"{text[:40]} is not a number that can be read")
            return None


def _unknown(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"is not known here; did you mean {near[0]}?"
    return f"is not known here; there are {', '.join(sorted(known))}"


def read_document(file: str, content: bytes, problems: Problems) -> Value | None:
    """Return the root of a file; report an error and return None if it isn't YAML."""
    start = Place(file, 1, 1)
    if len(content) > MAX_BYTES:
        problems.add(start, "", f"has {len(content):,} bytes, the limit is {MAX_BYTES:,}")
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problems.add(Place(file, line, 1), "", "is not UTF-8 text")
        return None
    try:
        _check_structure(text)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else start
        problems.add(place, "", f"is not YAML: {_reason(error)}")
        return None
    except yaml.reader.ReaderError as error:
        at = text[: error.position]
        place = Place(file, at.count("\n") + 1, len(at) - at.rfind("\n"))
        problems.add(place, "", "is not YAML: a control character")
        return None
    if root is None:
        return None
    return Value(root, file, "", problems)


def _reason(error: yaml.MarkedYAMLError) -> str:
    said = ", ".join(part for part in (error.context, error.problem) if part)
    if "cannot start any token" in said:
        said += '; put the value in quotes: "@daily"'
    return said


def _check_structure(text: str) -> None:
    """Check tags, depth and cycles before anything recurses."""
    open_anchors: list[str | None] = []
    for event in yaml.parse(text, Loader=_Loader):
        mark: Any = event.start_mark
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in _PLAIN:
            problem = f"the tag {tag.replace(_TAG, '!!')} is not plain YAML"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        if isinstance(event, yaml.AliasEvent) and event.anchor in open_anchors:
            raise yaml.MarkedYAMLError(
                problem=f"*{event.anchor} contains itself", problem_mark=mark
            )
        if isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append(event.anchor)
            if len(open_anchors) > _MAX_DEPTH:
                problem = f"nested over {_MAX_DEPTH} levels deep"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            open_anchors.pop()
