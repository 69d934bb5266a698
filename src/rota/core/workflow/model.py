"""The nouns of workflows: states, rules, and the definition of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from rota.model import GuaranteeName, Labelled

EachName: TypeAlias = Literal["chunk", "job"]
RuleName: TypeAlias = Literal["all_succeeded", "all_ended", "one_succeeded", "one_failed", "always"]


# The step of a chunk's job is the number of its map's step, and this.
CHUNK_BASE = 1_000_000
INLINE = "inline:"  # what the names of workflows begin with that were composed of calls

STREAM = {"$stream": True}  # what a map is over whose members are added while it runs
AT_ONCE, MOST_AT_ONCE, MOST_SIZE = 50, 10_000, 10_000


class RunState(Labelled):
    """The state of a run. A run that is paused, or is being cancelled, is still running."""

    RUNNING = 4
    SUCCEEDED = 5
    FAILED = 6
    CANCELLED = 7


class StepState(Labelled):
    """The state of a step in a run. Where a job has such a state, the number is the same."""

    WAITING = 1
    RUNNING = 4
    SUCCEEDED = 5
    FAILED = 6
    CANCELLED = 7
    SKIPPED = 8
    UPSTREAM_FAILED = 9  # not run, because its rule can't be met after a failure

    @property
    def is_final(self) -> bool:
        return self >= StepState.SUCCEEDED


class Rule(Labelled):
    """When a step starts, judged by how its predecessors ended."""

    ALL_SUCCEEDED = 1
    ALL_ENDED = 2
    ONE_SUCCEEDED = 3
    ONE_FAILED = 4
    ALWAYS = 5  # as ALL_ENDED, and also in a run that is cancelled or past its deadline


class StepKind(Labelled):
    """The kinds of steps."""

    TASK = 1
    WORKFLOW = 2
    END = 3  # the hidden last step, which ends the run
    FUNCTION = 4  # a durable function, the only step of its runs
    MAP = 5  # calls a task for each item of a list


class CheckpointKind(Labelled):
    """The kinds of entries in the history of a durable function: done, or waited for."""

    STEP = 1  # a function of its own process
    CALL = 2  # a job
    RUN = 3  # a run of a workflow, or of another durable function
    SLEEP = 4
    SIGNAL = 5
    NOTE = 6  # a value that must be the same at every replay: a time, the winner of a race


class StepDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step. What is left out, such as `queue`, is as the task declares it.

    `arguments` may hold references, `{"$step": "name"}` and `{"$input": "name"}`, at any depth: see
    `rota.core.workflow.references`.
    """

    name: str
    task: str | None = None
    workflow: str | None = None
    arguments: Mapping[str, Any] = {}
    after: Sequence[str] = ()
    rule: RuleName = "all_succeeded"
    when: str | None = None
    tolerate: int | float = 0  # a number of predecessors (of a map: members), or a share below 1
    optional: bool = False
    queue: str | None = None
    needs: Sequence[str] | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    guarantee: GuaranteeName | None = None
    map: str | None = None  # the task that is called for each item
    over: Any = None  # of a map: the list, or a reference to it; STREAM: added while it runs
    item: str | None = None  # of a map: the argument that takes the item; None: the first
    size: int | None = None  # of a map: members in a chunk; None: at_once chunks share the list
    at_once: int | None = None  # of a map: how many of its jobs may exist
    each: EachName = "chunk"
    resources: Mapping[str, Any] | None = None
    near: str | None = None
    near_patience: float | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow: steps, and what holds for all of them."""

    name: str
    steps: Sequence[StepDefinition]
    deadline: float | None = None  # seconds after the start of a run
    result: str | None = None  # the step whose result is the run's; None: the last, if there is one
    retention: float | None = None  # seconds for which ended runs are kept
    description: str = ""
    code_version: int | None = None  # of a durable function; None: a graph
