"""`client.workflows`, `client.runs` and `client.signals`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote
from uuid import UUID

import msgspec

from rota.client import bulk, wire
from rota.client.connections import C, Resource, call, iteration
from rota.client.exchanges import Exchange, Page, Pages, fetch, send
from rota.core.explain import Explanation
from rota.model import Run, RunChanged, RunStep, Signal, SignalSent, WorkflowInfo

Id = UUID | str
_Signals = list[Signal]


def _path(*parts: Any) -> str:
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


class Workflows(Resource[C]):
    """`client.workflows`"""

    @call
    def list(self) -> Exchange[Sequence[WorkflowInfo]]:
        """List workflows, each in its newest version, with how many of its runs have not ended."""
        return (yield from fetch("/v1/workflows", wire.WorkflowList)).items

    @call
    def get(self, name: str, version: int | None = None) -> Exchange[WorkflowInfo]:
        """Return a workflow: its newest version, or another."""
        return fetch(_path("workflows", name), WorkflowInfo, version=version)

    @call
    def apply(
        self, definitions: Sequence[Mapping[str, Any]], *, retire: Sequence[str] = ()
    ) -> Exchange[Sequence[WorkflowInfo]]:
        """Store definitions, as `get` returns them, and retire others: all or none. What changes nothing
        makes no new version."""
        body = {"definitions": definitions, "retire": retire}
        sent = send("POST", "/v1/workflows:apply", wire.WorkflowList, body, repeatable=True)
        return (yield from sent).items

    @call
    def signatures(self, tasks: Sequence[str]) -> Exchange[Sequence[wire.TaskSignatures]]:
        """Return what tasks take, by the live nodes that have registered them."""
        return (yield from fetch("/v1/tasks:signatures", wire.SignatureList, name=[*tasks])).items

    @call
    def retire(self, name: str) -> Exchange[WorkflowInfo]:
        """Let no further runs start. Those that have started continue."""
        return send("POST", _path("workflows", name, "retire"), WorkflowInfo, repeatable=True)

    @call
    def restore(self, name: str) -> Exchange[WorkflowInfo]:
        """Let runs of a retired workflow start again."""
        return send("POST", _path("workflows", name, "restore"), WorkflowInfo, repeatable=True)


class Runs(Resource[C]):
    """`client.runs`"""

    @call
    def start(
        self, workflow: str, given: Mapping[str, Any] | None = None, *, key: str | None = None,
        version: int | None = None, priority: int | None = None, deadline: float | None = None,
    ) -> Exchange[wire.RunStarted]:  # fmt: skip
        """Start a run with this input. It is committed when this returns.

        Without a `key` the client makes one, so that a request whose response is lost can be repeated
        and still starts one run.
        """
        body = {
            "input": given or {}, "key": bulk.new_key() if key is None else key, "version": version,
            "priority": priority, "deadline": deadline,
        }  # fmt: skip
        path = _path("workflows", workflow, "runs")
        started = yield from send("POST", path, wire.RunStarted, body, repeatable=True)
        # With a key of the client's own, the existing run is that of its first attempt.
        return msgspec.structs.replace(started, existed=key is not None and started.existed)

    @call
    def get(self, id: Id) -> Exchange[Run]:
        """Return a run as it is now."""
        return fetch(_path("runs", id), Run)

    @iteration
    def list(
        self, *, workflow: str | None = None, state: str | None = None, limit: int | None = None,
        page_size: int = 100,
    ) -> Pages[Run]:  # fmt: skip
        """Iterate over runs, newest first. `state`: running, succeeded, failed or cancelled."""
        query = {"workflow": workflow, "state": state}
        return Pages("/v1/runs", Page[Run], query, limit, page_size)

    @call
    def steps(
        self, id: Id, *, state: str | None = None, after: int = -1, limit: int = 100
    ) -> Exchange[wire.RunStepPage]:
        """Return steps of a run by their numbers, and the number to pass as `after` for more."""
        path = _path("runs", id, "steps")
        return fetch(path, wire.RunStepPage, state=state, after=after, limit=limit)

    @call
    def step(self, id: Id, step: str) -> Exchange[RunStep]:
        """Return a step of a run."""
        return fetch(_path("runs", id, "steps", step), RunStep)

    @call
    def result(self, id: Id) -> Exchange[Any]:
        """Return the result: that of its last step, or those of several by name. None until they have
        succeeded."""
        return (yield from fetch(_path("runs", id, "result"), dict[str, Any]))["result"]

    @call
    def explain(self, id: Id, step: str | None = None) -> Exchange[Explanation]:
        """Explain what a run, or a step of it, waits for, and what to do."""
        parts = () if step is None else ("steps", step)
        return fetch(_path("runs", id, *parts, "explain"), Explanation)

    @call
    def cancel(self, id: Id) -> Exchange[RunChanged]:
        """Cancel it: what waits is closed, what runs is asked to stop, `always` steps still run.

        This, `resume`, `retry` and `skip` are not repeated when their response is lost: look at the run.
        """
        return send("POST", _path("runs", id, "cancel"), RunChanged)

    @call
    def pause(self, id: Id) -> Exchange[RunChanged]:
        """Start no further steps until it is resumed."""
        return send("POST", _path("runs", id, "pause"), RunChanged, repeatable=True)

    @call
    def resume(self, id: Id) -> Exchange[RunChanged]:
        """Go on: after a pause, or from the steps that failed or were cancelled."""
        return send("POST", _path("runs", id, "resume"), RunChanged)

    @call
    def retry(self, id: Id, step: str) -> Exchange[RunChanged]:
        """Run a step again, and everything that comes after it."""
        return send("POST", _path("runs", id, "steps", step, "retry"), RunChanged)

    @call
    def members(
        self, id: Id, step: str, *, state: str | None = None, after: int = -1, limit: int = 100
    ) -> Exchange[wire.MemberPage]:
        """Return members of a map by their numbers, and the number to pass as `after` for more."""
        path = _path("runs", id, "steps", step, "members")
        return fetch(path, wire.MemberPage, state=state, after=after, limit=limit)

    @call
    def retry_members(
        self, id: Id, step: str, numbers: Sequence[int] | None = None
    ) -> Exchange[RunChanged]:
        """Run failed members of a map again, all or some, and everything that comes after the map."""
        path = _path("runs", id, "steps", step, "members", "retry")
        return send("POST", path, RunChanged, {"numbers": numbers})

    @call
    def skip(self, id: Id, step: str, result: Any = None) -> Exchange[RunChanged]:
        """Let a step count as succeeded with this result, without running it."""
        path = _path("runs", id, "steps", step, "skip")
        return send("POST", path, RunChanged, {"result": result})

    @call
    def history(self, id: Id, *, after: int = 0, limit: int = 100) -> Exchange[wire.CheckpointPage]:
        """Return what a durable function has done, and the number to pass as `after` for more."""
        return fetch(_path("runs", id, "history"), wire.CheckpointPage, after=after, limit=limit)

    @call
    def send(
        self, id: Id, signal: str, payload: Any = None, *, once: str | None = None
    ) -> Exchange[SignalSent]:
        """Send a signal to a run. With `once` it is repeated when a response is lost, and still counts
        once."""
        body = {"signal": signal, "payload": payload, "once": once}
        path = _path("runs", id, "signals")
        return send("POST", path, SignalSent, body, repeatable=once is not None)


class Signals(Resource[C]):
    """`client.signals`"""

    @call
    def list(
        self, *, name: str | None = None, key: str | None = None, limit: int = 100
    ) -> Exchange[Sequence[Signal]]:
        """List signals, newest first, at most 500."""
        return fetch("/v1/signals", _Signals, name=name, key=key, limit=limit)

    @call
    def send(
        self, name: str, key: str, payload: Any = None, *, once: str | None = None
    ) -> Exchange[SignalSent]:
        """Send a signal to the function that waits for it, or to the next one that will. With `once` it
        is repeated when a response is lost, and still counts once."""
        body = {"name": name, "key": key, "payload": payload, "once": once}
        return send("POST", "/v1/signals", SignalSent, body, repeatable=once is not None)
