"""Read YAML as nodes with positions, and collect all errors in them.

Only plain YAML is read: no tags of programming languages, no dates (they stay text), and only
``true`` and ``false`` are booleans, so that the country ``NO`` stays a text. Anchors, aliases and
``<<`` work. A document that aliases expand too far, that contains itself or is nested too deeply is
refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from rota.errors import ConfigError

MAX_BYTES = 1_000_000
_MAX_DEPTH = 100
_MAX_VALUES = 100_000
_TAG = "tag:yaml.org,2002:"
_PLAIN = {f"{_TAG}{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null")}
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc] # the same in C, where there is one
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own attribute


class QuotingDumper(yaml.SafeDumper):
    """Writes plain YAML. Texts that a loader would take for something else are quoted."""

    yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012 - PyYAML's own attribute
        first: [*resolvers] for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


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
    for _class in (_Loader, QuotingDumper):
        _class.add_implicit_resolver(
            f"{_TAG}{_kind}", re.compile(f"^(?:{_pattern})$"), list(_first)
        )


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str, "merge": str, "float": float,
    "int": lambda text: int(text, 0),
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
}  # fmt: skip


class Place(NamedTuple):
    """The start of a node, counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Source(msgspec.Struct, frozen=True):
    """A file to read: its name in messages, its content, and the folder of the files it names."""

    name: str
    content: bytes
    folder: Path = Path()

    @classmethod
    def read(cls, name: str | Path) -> Source:
        path = Path(name)
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{path} can't be read: {error.strerror}") from None
        return cls(str(path), content, path.parent)

    def text(self) -> str:
        """Return the content as text; a `ConfigError` doesn't repeat the name."""
        if len(self.content) > MAX_BYTES:
            raise ConfigError(f"has over {MAX_BYTES:,} bytes")
        try:
            return self.content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.content.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"is not UTF-8 text in line {line}") from None


class Problems:
    """Collects all errors of a set of files."""

    def __init__(self) -> None:
        self._found: list[tuple[Place, str, str]] = []
        self.values = 0  # counted, because aliases make many values of few

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


@dataclass
class Value:
    """A node of a file, with the path that leads to it."""

    node: yaml.Node
    file: str
    path: str
    problems: Problems
    key: Value | None = None  # of a mapping's value

    @property
    def place(self) -> Place:
        mark: Any = self.node.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1)

    def report(self, message: str) -> None:
        self.problems.add(self.place, self.path, message)

    def _inner(self, node: yaml.Node, name: str, key: Value | None = None) -> Value:
        path = f"{self.path}.{name}" if self.path else name
        return Value(node, self.file, path, self.problems, key)

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
            kind = "empty" if self.is_null else "a mapping" if self.is_mapping else "a list"
            self.report(f"must be a text, not {kind}")
            return None
        text = str(self.node.value)
        if bad := re.search("[\0\ud800-\udfff]", text):
            self.report(f"has the character {bad[0]!r}, which can't be stored")
            return None
        return text

    def entries(self, known: Collection[str] | None = None) -> dict[str, Value]:
        """Return a mapping's values by key. With `known`, other keys are errors."""
        if self.is_null:
            return {}
        if not self.is_mapping:
            self.report("must be a mapping, with lines such as `name: value`")
            return {}
        own: dict[str, Value] = {}
        merged: dict[str, Value] = {}
        for key, node in self.node.value:
            if key.tag == f"{_TAG}merge":
                merged.update(self._merge(node))
                continue
            if (name := self._inner(key, "?").text()) is None:
                continue
            place = self._inner(key, name)
            if name in own:
                place.report("is there twice")
            elif known is not None and name not in known and not name.startswith("x-"):
                place.report(_unknown(name, known))
            else:
                own[name] = self._inner(node, name, place)
        return {**merged, **own}

    def _merge(self, node: yaml.Node) -> dict[str, Value]:
        """Return the entries that `<<` merges; of several mappings the first wins."""
        inner = self._inner(node, "<<")
        found: dict[str, Value] = {}
        for each in reversed([inner] if inner.is_mapping else list(inner.items())):
            if not each.is_mapping:
                each.report("must be a mapping, or a list of them")
            found |= {name: self._inner(value.node, name) for name, value in each.entries().items()}
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
        self.problems.values += 1
        if self.problems.values > _MAX_VALUES:
            self.report(f"has over {_MAX_VALUES:,} values, aliases counted")
            return None
        if self.is_mapping:
            return {name: value.data() for name, value in self.entries().items()}
        if self.is_sequence:
            return [value.data() for value in self.items()]
        return self._scalar()

    def _scalar(self) -> Any:
        text = None if self.is_null else self.text()
        if text is None:
            return None
        kind = self.node.tag.removeprefix(_TAG)
        try:
            return _SCALARS[kind](text)
        except (ValueError, KeyError):
            self.report(f"{text[:40]} is not a valid {kind}")
            return None


def _unknown(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"is not known here; did you mean {near[0]}?"
    return f"is not known here; there are {', '.join(sorted(known))}"


def read_document(source: Source, problems: Problems) -> Value | None:
    """Return the root of a file; report an error and return None if it isn't YAML."""
    place = Place(source.name, 1, 1)
    try:
        text = source.text()
        _check_structure(text)
        root = yaml.compose(text, Loader=_Loader)
    except ConfigError as error:
        problems.add(place, "", str(error))
    except yaml.MarkedYAMLError as error:
        if mark := error.problem_mark or error.context_mark:
            place = Place(source.name, mark.line + 1, mark.column + 1)
        problems.add(place, "", f"is not YAML: {_reason(error)}")
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = Place(source.name, before.count("\n") + 1, len(before) - before.rfind("\n"))
        problems.add(place, "", "is not YAML: a control character")
    else:
        return None if root is None else Value(root, source.name, "", problems)
    return None


def _reason(error: yaml.MarkedYAMLError) -> str:
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    if "cannot start any token" in reason:
        reason += '; put the value in quotes: "@daily"'
    return reason


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
