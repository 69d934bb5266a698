"""The tables that statements use, and for what, read from the SQL itself.

So the rights of a database role follow from the queries that it runs, and can't lag behind them. The
functions of a query count, with those that they call and the triggers of the tables that they write; a
function that runs with its owner's rights (security definer) counts for nothing but itself. What isn't
certain is granted: a statement that locks rows without saying of which table is taken to lock all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from rota.store.sql import function_statements, named_queries, schema_texts

Privileges = dict[str, set[str]]  # by table

_TABLE = re.compile(r"create (?:unlogged )?table (?:if not exists )?rota\.(\w+)")
_VIEW = re.compile(r"create view rota\.(\w+) as(.*?);", re.DOTALL)
_SEQUENCE = re.compile(r"create sequence rota\.(\w+)")
_TRIGGER = re.compile(
    r"create trigger \w+ (?:before|after) ([\w ,]+?) on rota\.(\w+).*?execute function rota\.(\w+)",
    re.DOTALL,
)
_FUNCTION = re.compile(r"create or replace function rota\.(\w+)")
_CALLED = re.compile(r"\brota\.(\w+)\(")
_NAMED = re.compile(r"\brota\.(\w+)\b(?:\s+(?:as\s+)?(\w+))?")
_WRITTEN = re.compile(r"\b(insert into|update|delete from) rota\.(\w+)\b")
_UPSERT = re.compile(r"\bdo update\b")
_LOCKED = re.compile(
    r"\bfor (?:no key update|update|share|key share)(?: of ([\w, ]+?))?"
    r"(?= *(?:skip|nowait|\)|;|$|\n|limit))"
)
_COMMENT = re.compile(r"--[^\n]*")
_VERBS = {"insert into": "insert", "update": "update", "delete from": "delete"}


class Use(NamedTuple):
    """The tables that a piece of SQL uses by itself, and the functions that it calls."""

    privileges: Privileges
    sequences: set[str]
    calls: set[str]


@cache
def _schema() -> tuple[frozenset[str], dict[str, str], frozenset[str], list[tuple[str, str, str]]]:
    """Return tables, views with their text, sequences, and triggers: (events, table, function)."""
    text = _COMMENT.sub("", "\n".join(schema_texts()))
    return (
        frozenset({*_TABLE.findall(text), "migration"}),
        dict(_VIEW.findall(text)),
        frozenset({*_SEQUENCE.findall(text), "event_id_seq"}),
        _TRIGGER.findall(text),
    )


@cache
def _functions() -> dict[str, str]:
    """Return the text of each function. Those with the same name are one."""
    found: dict[str, str] = {}
    for statement in function_statements("rota"):
        plain = _COMMENT.sub("", statement)
        if (head := _FUNCTION.search(plain)) is not None:
            found[head[1]] = found.get(head[1], "") + plain
    return found


def _use_of(sql: str) -> Use:
    tables, views, sequences, _ = _schema()
    plain = _COMMENT.sub("", sql)
    privileges: Privileges = {}
    aliases: dict[str, str] = {}
    for name, alias in _NAMED.findall(plain):
        if name in tables or name in views:
            privileges.setdefault(name, set()).add("select")
            aliases[alias or name] = aliases[name] = name
    for verb, table in _WRITTEN.findall(plain):
        if table in tables:
            privileges[table].add(_VERBS[verb])
    if _UPSERT.search(plain):
        for used in (each for each in privileges.values() if "insert" in each):
            used.add("update")
    for named in _LOCKED.findall(plain):
        places = (
            [aliases.get(each.strip()) for each in named.split(",")] if named else [*privileges]
        )
        for place in places:
            if place in tables:
                privileges[place].add("update")
    functions = _functions()
    calls = {name for name in _CALLED.findall(plain) if name in functions}
    used_sequences = {name for name in sequences if re.search(rf"'rota\.{name}'", plain)}
    return Use(privileges, used_sequences, calls)


class Needs:
    """The closure of some queries: tables, sequences and functions."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.tables: Privileges = {}
        self.sequences: set[str] = set()
        self.functions: set[str] = set()
        for text in texts:
            self._add(_use_of(text))
        self._follow()

    def _add(self, use: Use) -> None:
        for table, used in use.privileges.items():
            self.tables.setdefault(table, set()).update(used)
        self.sequences |= use.sequences
        self.functions |= use.calls

    def _follow(self) -> None:
        """Add what functions, triggers and views need, until nothing is new."""
        _, views, _, triggers = _schema()
        known = _functions()
        done: set[str] = set()
        while True:
            started = {
                function
                for events, table, function in triggers
                for used in [self.tables.get(table, set())]
                if any(event.split()[0] in used for event in events.split(" or "))
            }
            todo = {name for name in self.functions | started if name in known} - done
            inner = {name for name in views if name in self.tables and f"view {name}" not in done}
            if not todo and not inner:
                return
            for name in todo:
                done.add(name)
                if "security definer" not in known[name]:
                    self._add(_use_of(known[name]))
            for name in inner:
                done.add(f"view {name}")
                self._add(_use_of(views[name]))


def needs_of(files: Iterable[str], more: Iterable[str] = ()) -> Needs:
    """Return what the queries of these files need, and more queries."""
    return Needs([*(text for file in files for text in named_queries(file).values()), *more])


def known_tables() -> frozenset[str]:
    """Return the names of all tables and views."""
    tables, views, _, _ = _schema()
    return tables | frozenset(views)


def definer_functions() -> frozenset[str]:
    """Return the functions that run with their owner's rights and that not everybody may call."""
    return frozenset(
        name for name, text in _functions().items()
        if "security definer" in text and "revoke execute" in text
    )  # fmt: skip
