"""Loading and rendering of the SQL files. Text that statements share is written once, here.

schema/ has the tables, by migration. queries/ has the named queries. functions/ has the SQL functions:
`rota migrate` applies them again when their text has changed. A function whose parameters change gets
a new signature, and a `drop function` for the old one in a `post` migration. A file may contain

- `{state.running}`, `{guarantee.exactly_once}`, `{overlap.kill}`, `{occurrence.fired}`, `{run.failed}`,
  `{step.waiting}`, `{rule.always}`, `{kind.task}`, `{checkpoint.sleep}`,
  `{chunk.base}`: the number that the tables store for a name; `{state.labels}`: all names, quoted, in
  the order of their numbers;
- `{default.max_attempts}`, `{default.priority}`, `{default.guarantee}`: the defaults of a job;
- `{{columns moved}}`: the columns of a job, comma-separated. `submitted`: those that a submit decides,
  `moved` all that a job keeps when its row goes to another table, `ended` those of a finished job;
  `schedule` those of a schedule that its definition and a change of it set;
- `{{insert rota.past, ended: state = {state.cancelled}; token = null}}`: an insert of these columns, up
  to its `from`. A column gets the source's value of the same name, or what is given here. By default
  `rank` and `shard` follow from the job, `finished_at` is now, `result` and `error` are null;
- `{{let its: id = its_id; ...}}`: values for `{{insert rota.past, ended its}}` in the same function;
- `{{select ended: ...}}`: the same values under the columns' names, as the list of a select;
- `{{overwrite ended}}`: the columns but the id, for `on conflict (id) do update set`;
- `{{tally ended: counted = true}}`: common table expressions that count the ended jobs of `ended` in the
  statistics, and as having left their queues; the latter happens when `flowed` is read;
- `{{runs ended: counted = true}}`: a statement that does the former alone;
- `{{tell spared}}`: an insert of the events about the jobs of `spared` that sinks have asked for;
- `{{trace spared}}`: an insert of the ids of `spared` into `rota.trace`;
- `{{buckets}}`: where each bucket of `core/histogram.py` but the first begins, as an array of intervals;
- `rota.`: the configured schema.

The files in schema/ use names of numbers only: they are never changed, while lists of columns grow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from rota.core.histogram import BOUNDS
from rota.core.workflow.model import (
    CHUNK_BASE,
    CheckpointKind,
    Rule,
    RunState,
    StepKind,
    StepState,
)
from rota.lib import failpoints
from rota.model import Guarantee, State
from rota.store.rows import TaskDefaults

OVERLAPS = {"allow": 1, "skip": 2, "queue": 3, "kill": 4}
OCCURRENCES = {"fired": 1, "skipped": 2}

_DEFAULTS = TaskDefaults()
_NUMBERS: Mapping[str, Mapping[str, int]] = {
    "state": {state.label: state for state in State},
    "guarantee": {guarantee.label: guarantee for guarantee in Guarantee},
    "overlap": OVERLAPS,
    "occurrence": OCCURRENCES,
    "default": {
        name: getattr(_DEFAULTS, name) for name in ("priority", "guarantee", "max_attempts")
    },
    "run": {state.label: state for state in RunState},
    "step": {state.label: state for state in StepState},
    "rule": {rule.label: rule for rule in Rule},
    "kind": {kind.label: kind for kind in StepKind},
    "checkpoint": {kind.label: kind for kind in CheckpointKind},
    "chunk": {"base": CHUNK_BASE},
}

SUBMITTED = (
    "id", "due_at", "run_id", "schedule_id", "timeout", "priority", "guarantee", "max_attempts",
    "namespace", "lane", "task", "key", "step", "share", "payload", "headers",
)  # fmt: skip
MOVED = (*SUBMITTED, "created_at", "attempt", "crashes", "attempts")
ENDED = (
    *MOVED, "token", "node", "started_at", "finished_at", "state", "progress", "result", "error"
)  # fmt: skip
SCHEDULE = (
    "cursor", "next_due", "paused_at", "undecided_version", "overlap", "max_running", "max_queued",
    "drop_newest", "priority", "guarantee", "max_attempts", "timeout", "lane", "task", "payload",
    "headers", "spec", "source",
)  # fmt: skip
_COLUMNS = {"submitted": SUBMITTED, "moved": MOVED, "ended": ENDED, "schedule": SCHEDULE}
_ENDED_NOW = {"finished_at": "rota.now()", "result": "null", "error": "null"}

# What `tally` and `runs` become. What is computed for each job is computed once (`offset 0`), and as an
# interval: to take seconds out of one costs more than all the rest.
_PAIRS = """select date_bin('1 minute', e.finished_at, '2000-01-01 00:00:00+00') as minute,
               split_part(e.lane, '/', 1) as namespace, e.lane, e.task, e.failed, rota.bucket(e.took) as duration,
               case when e.took is not null then rota.bucket(e.late) end as lag, count(*) as jobs, sum(e.took) as took
        from (select lane, task, finished_at, state = {failed} as failed, started_at - due_at as late,
                     case when state in ({succeeded}, {failed}) then finished_at - started_at end as took
              from {source} offset 0) as e
        group by 1, 3, 4, 5, 6, 7"""  # noqa: E501
_RUNS = """insert into rota.tally (minute, namespace, queue, task, failed, seconds, durations, lags, counts)
        select p.minute, p.namespace, rota.queue_of(p.lane), p.task, p.failed, date_part('epoch', sum(p.took)), array_agg(p.duration),
               array_agg(p.lag), array_agg(p.jobs)
        from {pairs} as p where p.duration is not null and {counted}
        group by p.minute, p.namespace, p.lane, p.task, p.failed"""  # noqa: E501
_FLOWED = """select count(*) as flows
        from (select p.namespace, rota.queue_of(p.lane) as queue, -sum(p.jobs)::bigint as jobs from pair as p group by 1, 2) as t
        cross join lateral (
            select from rota.queue as q where q.namespace = t.namespace and q.name = t.queue and q.intake is not null offset 0) as q
        cross join lateral rota.add_flow(t.namespace, t.queue, t.jobs)"""  # noqa: E501
_TALLY = (
    f"pair as materialized ({_PAIRS}), "
    f"tallied as ({_RUNS.replace('{pairs}', 'pair')}), flowed as ({_FLOWED})"
)
_RUNS = _RUNS.replace("{pairs}", f"({_PAIRS})")

_TRACE = """insert into rota.trace (ended_at, namespace, queue, task, prefix, low, high, ids)
    select rota.now(), e.namespace, e.queue, e.task, e.prefix, e.ids[1], e.ids[cardinality(e.ids)], e.ids
    from (select namespace, rota.queue_of(lane) as queue, task, left(id::text, 8) as prefix, array_agg(id order by id) as ids
          from {source} group by 1, 2, 3, 4) as e"""  # noqa: E501

# What `tell` becomes. Jobs of Rota's own are nobody's business.
_TELL = """insert into rota.outbox (id, namespace, kind, task, job_id, detail)
    select nextval('rota.event_id_seq'), e.namespace, e.kind, e.task, e.id,
           json_build_object('attempt', e.attempt, 'queue', rota.queue_of(e.lane),
                             'started_at', e.started_at, 'finished_at', e.finished_at)
    from (select *, case state when {succeeded} then 'succeeded'
                               when {cancelled} then 'cancelled' end as kind from {source}) as e
    where e.kind is not null and not rota.is_internal_task(e.task)
      and rota.is_wanted(e.namespace, e.kind, rota.queue_of(e.lane), e.task)"""

# Where each bucket but the first begins. PostgreSQL keeps whole microseconds, and 14 reads no more than
# 32 bits of them: seconds it is.
_MICROSECONDS = [1 + int(round(bound * 1e6, 3)) for bound in BOUNDS]
_SECONDS = [f"{n // 1_000_000}.{n % 1_000_000:06d} s" for n in _MICROSECONDS]
_BUCKETS = f"'{{{','.join(_SECONDS)}}}'::interval[]"

_NAME = re.compile(r"\{(" + "|".join(_NUMBERS) + r")\.(\w+)\}")
_MACRO = re.compile(
    r"\{\{(let|insert|select|columns|overwrite|tally|runs|tell|trace) (.*?)\}\}", re.DOTALL
)
_INSERT = re.compile(r"(rota\.(\w+)(?: as \w+)?), (\w+)(?: (\w+))?")
_SCHEMA = re.compile(r"\brota\.")
_QUERY = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_FUNCTION = re.compile(r"^(?=create or replace function )", re.MULTILINE)


@cache
def _texts(folder: str) -> tuple[str, ...]:
    files = (resources.files("rota.store") / folder).iterdir()
    found = sorted((file.name, file) for file in files if file.name.endswith(".sql"))
    return tuple(file.read_text("utf-8") for _, file in found)


@cache
def load_queries(schema: str) -> dict[str, str]:
    """Return all queries, by name. A query has the name of the store's method that runs it."""
    queries: dict[str, str] = {}
    for file in _texts("queries"):
        parts = _QUERY.split(file)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in queries:
                raise ValueError(f"two queries are named {name}")
            queries[name] = render(text, schema).strip().rstrip(";")
    failpoints.know(queries)
    return queries


@cache
def named_queries(file: str) -> dict[str, str]:
    """Return the queries of one file of queries/, by name, for the schema `rota`."""
    text = (resources.files("rota.store") / "queries" / f"{file}.sql").read_text("utf-8")
    parts = _QUERY.split(text)
    return {
        name: render(query, "rota") for name, query in zip(parts[1::2], parts[2::2], strict=True)
    }


def query_files() -> list[str]:
    """Return the names of the files of queries/."""
    files = (resources.files("rota.store") / "queries").iterdir()
    return sorted(file.name[:-4] for file in files if file.name.endswith(".sql"))


def schema_texts() -> list[str]:
    """Return the migrations, for the schema `rota`."""
    return [render(text, "rota") for text in _texts("schema")]


def function_statements(schema: str) -> list[str]:
    """Return one `create or replace function` statement for each function."""
    return [
        render(part, schema) for text in _texts("functions") for part in _FUNCTION.split(text)[1:]
    ]


@cache
def checksum_of_functions() -> str:
    """Return the digest of the rendered functions, which changes also with this module."""
    return hashlib.sha256("".join(function_statements("rota")).encode()).hexdigest()


def render(sql: str, schema: str) -> str:
    """Return the text of a file as PostgreSQL takes it, for this schema."""
    sql = _NAME.sub(lambda match: _named(match[1], match[2]), sql.replace("{{buckets}}", _BUCKETS))
    named: dict[str, dict[str, str]] = {}
    sql = _MACRO.sub(lambda match: _expand(match[1], match[2], named), sql)
    return _SCHEMA.sub(f"{schema}.", sql)


def _named(kind: str, name: str) -> str:
    numbers = _NUMBERS[kind]
    if name == "labels":
        return ", ".join(f"'{label}'" for label in numbers)
    return str(int(numbers[name]))


def _expand(macro: str, text: str, named: dict[str, dict[str, str]]) -> str:
    head, _, rest = text.partition(":")
    given = dict(_split(assignment, "=") for assignment in rest.split(";") if assignment.strip())
    if macro == "let":
        named[head] = given
        return ""
    if macro == "insert":
        return _insert(head, given, named)
    if macro in ("tally", "runs"):
        return (_TALLY if macro == "tally" else _RUNS).format(
            source=head, counted=given.get("counted", "true"),
            failed=int(State.FAILED), succeeded=int(State.SUCCEEDED),
        )  # fmt: skip
    if macro == "tell":
        return _TELL.format(
            source=head, succeeded=int(State.SUCCEEDED), cancelled=int(State.CANCELLED)
        )
    if macro == "trace":
        return _TRACE.format(source=head)
    columns = _COLUMNS[head]
    if macro == "overwrite":
        others = columns[1:]
        return f"({', '.join(others)}) = ({', '.join(f'excluded.{name}' for name in others)})"
    if macro == "columns":
        return ", ".join(columns)
    values = _values(columns, given)
    return ", ".join(
        name if value == name else f"{value} as {name}" for name, value in values.items()
    )


def _insert(head: str, given: dict[str, str], named: dict[str, dict[str, str]]) -> str:
    parts = _INSERT.fullmatch(head.strip())
    if parts is None:
        raise ValueError(f"no such insert: {head}")
    target, table, columns, values_name = parts.groups()
    values = _values(_COLUMNS[columns], {**named.get(values_name, {}), **given})
    if table == "present":
        # A job that comes back may lie in a sublane that another policy has ordered.
        rank = "rank({due_at}, {priority})"
        if columns == "moved":
            rank = "rank_in({share}, {namespace}, {task}, {due_at}, {priority})"
        values.setdefault("rank", "rota." + rank.format(**values))
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
