"""Rendering of the SQL files: what several statements share is written once, here or in `rota.model`.

A file may contain

- `{state.running}`, `{guarantee.exactly_once}`, `{overlap.kill}`, `{occurrence.fired}`: the number that
  the tables store for a name; `{state.labels}`: all names, quoted, in the order of their numbers;
- `{{columns moved}}`: the columns of a job, comma-separated. `submitted`: those that a submit decides,
  `moved` all that a job keeps when its row goes to another table, `ended` those of a finished job;
- `{{insert rota.past, ended: state = {state.cancelled}; token = null}}`: an insert of these columns, up
  to its `from`. A column gets the source's value of the same name, or what is given here. By default
  `rank` and `shard` follow from the job, `finished_at` is now, `result` and `error` are null;
- `{{select ended: ...}}`: the same values under the columns' names, as the list of a select;
- `{{overwrite ended}}`: the columns but the id, for `on conflict (id) do update set`;
- `rota.`: the configured schema.

The files in schema/ use names of numbers only: they are never changed, while lists of columns grow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rota.model import Guarantee, State

OVERLAPS = {"allow": 1, "skip": 2, "queue": 3, "kill": 4}
OCCURRENCES = {"fired": 1, "skipped": 2}

_NUMBERS: Mapping[str, Mapping[str, int]] = {
    "state": {state.label: state for state in State},
    "guarantee": {guarantee.label: guarantee for guarantee in Guarantee},
    "overlap": OVERLAPS,
    "occurrence": OCCURRENCES,
}

SUBMITTED = (
    "id", "due_at", "workflow_id", "schedule_id", "timeout", "priority", "guarantee", "max_attempts",
    "namespace", "lane", "task", "key", "step", "share", "payload", "headers",
)  # fmt: skip
MOVED = (*SUBMITTED, "created_at", "attempt", "crashes", "attempts")
ENDED = (
    *MOVED, "token", "node", "started_at", "finished_at", "state", "progress", "result", "error"
)  # fmt: skip
_COLUMNS = {"submitted": SUBMITTED, "moved": MOVED, "ended": ENDED}
_ENDED_NOW = {"finished_at": "rota.now()", "result": "null", "error": "null"}

_NAME = re.compile(r"\{(" + "|".join(_NUMBERS) + r")\.(\w+)\}")
_MACRO = re.compile(r"\{\{(insert|select|columns|overwrite) (.*?)\}\}", re.DOTALL)
_INSERT = re.compile(r"(rota\.(\w+)(?: as \w+)?), (\w+)")
_SCHEMA = re.compile(r"\brota\.")


def render(sql: str, schema: str) -> str:
    """Return the text of a file as PostgreSQL takes it, for this schema."""
    sql = _NAME.sub(lambda match: _named(match[1], match[2]), sql)
    return _SCHEMA.sub(f"{schema}.", _MACRO.sub(_expand, sql))


def _named(kind: str, name: str) -> str:
    numbers = _NUMBERS[kind]
    if name == "labels":
        return ", ".join(f"'{label}'" for label in numbers)
    return str(int(numbers[name]))


def _expand(match: re.Match[str]) -> str:
    head, _, rest = match[2].partition(":")
    given = dict(_split(assignment, "=") for assignment in rest.split(";") if assignment.strip())
    if match[1] == "insert":
        return _insert(head, given)
    columns = _COLUMNS[head]
    if match[1] == "overwrite":
        others = columns[1:]
        return f"({', '.join(others)}) = ({', '.join(f'excluded.{name}' for name in others)})"
    if match[1] == "columns":
        return ", ".join(columns)
    values = _values(columns, given)
    return ", ".join(
        name if value == name else f"{value} as {name}" for name, value in values.items()
    )


def _insert(head: str, given: dict[str, str]) -> str:
    parts = _INSERT.fullmatch(head.strip())
    if parts is None:
        raise ValueError(f"no such insert: {head}")
    target, table, columns = parts.groups()
    values = _values(_COLUMNS[columns], given)
    if table == "present":
        values.setdefault("rank", f"rota.rank({values['due_at']}, {values['priority']})")
    elif table == "future":
        shards = "(select value from rota.setting where name = 'shards')"
        values.setdefault("shard", f"rota.shard_of({values['id']}, {shards})")
    return f"insert into {target} ({', '.join(values)}) select {', '.join(values.values())}"


def _values(columns: tuple[str, ...], given: dict[str, str]) -> dict[str, str]:
    """Return the expression for each column; those given that aren't in the list come after it."""
    if columns is ENDED:
        if "state" not in given:
            raise ValueError("a job ends in a state: give it")
        given = {**_ENDED_NOW, **given}
    return {name: name for name in columns} | given


def _split(text: str, by: str) -> tuple[str, str]:
    name, _, value = text.partition(by)
    return name.strip(), value.strip()
