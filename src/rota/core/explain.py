"""Explains why a job isn't running, in one exact sentence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.core.durations import format_duration
from rota.core.explain_room import explain_room, explain_unfit
from rota.core.remedies import remedies_of
from rota.core.time.plan import REASONS
from rota.model import Guarantee, Remedy, State

_COMMANDS = "rota.command"
_FOR_EVER = 900_000_000  # seconds: a timeout that means none
_BEFORE = {State.WAITING, State.SCHEDULED, State.READY}
_ENDINGS = {State.CANCELLED: "was cancelled", State.SKIPPED: "was skipped"}


class Explanation(msgspec.Struct, frozen=True):
    """A stable code for programs, a sentence for users, and what can be done about it."""

    code: str
    sentence: str
    remedies: tuple[Remedy, ...] = ()

    def __str__(self) -> str:
        return self.sentence


# What the job before it of its order_key does, by its state.
_GOES_FIRST = {
    "running": "is running",
    "ready": "is ready",
    "scheduled": "waits for its retry",
    "failed": "has failed: retry or discard it",
}


def explain(facts: Mapping[str, Any], max_run_time: float = 0) -> Explanation:
    """Explain a job by the facts that the query explain_job reads in one snapshot.

    `max_run_time`: the installation's, in seconds; 0: none.
    """
    explanation = _explain(facts, max_run_time)
    explanation = Explanation(
        explanation.code, explanation.sentence, remedies_of(explanation.code, facts)
    )
    known = facts.get("registered", True) or facts["attempt"] > 0
    if known or State(facts["state"]) not in _BEFORE or _knowing(_servers(facts)):
        return explanation
    advice = f"No node has registered a task named {facts['task']!r} so far: is the name right?"
    return Explanation(
        explanation.code, f"{explanation.sentence} {advice}",
        (*explanation.remedies, Remedy("show_tasks", "", "Tasks")),
    )  # fmt: skip


def _explain(facts: Mapping[str, Any], max_run_time: float) -> Explanation:
    match State(facts["state"]):
        case State.SCHEDULED:
            return _scheduled(facts)
        case State.READY:
            return _ready(facts)
        case State.RUNNING:
            return _running(facts, max_run_time)
        case State.WAITING:
            return _waiting(facts)
        case ended:
            return _ended(ended, facts)


def _scheduled(facts: Mapping[str, Any]) -> Explanation:
    now, due = facts["now"], facts["due_at"]
    if due <= now and not facts["schedulers"]:
        return Explanation(
            "no_scheduler",
            f"It has been due for {_span(now - due)}, but no live node has the scheduler role to "
            "release it; start one with `rota start --role scheduler`.",
        )
    fault = facts.get("coordinator_fault")
    if due <= now:
        return Explanation(
            "being_released",
            f"It has been due for {_span(now - due)}; a scheduler is about to release it."
            + (f" {fault}; PostgreSQL is used instead." if fault else ""),
        )
    if facts["attempt"] > 0:
        return Explanation(
            "waiting_for_retry",
            f"It waits for retry {facts['attempt'] + 1} of {facts['max_attempts']} at "
            f"{_moment(due)} ({_until(due, now)}){_last_error(facts)}.",
        )
    if (punctual := _punctual(facts)) is not None:
        return punctual
    return Explanation("not_due", f"It is due at {_moment(due)} ({_until(due, now)}).")


def _ready(facts: Mapping[str, Any]) -> Explanation:
    now, due = facts["now"], facts["due_at"]
    if facts["paused_at"] is not None:
        return Explanation(
            "queue_paused",
            f"Queue {_queue(facts)!r} has been paused since {_moment(facts['paused_at'])}; "
            f"`rota queues resume {_queue(facts)}` resumes it.",
        )
    if (blocked := _no_server(facts)) is not None:
        return blocked
    if due > now:
        if (punctual := _punctual(facts)) is not None:
            return punctual
        return Explanation("about_to_start", f"It is due in {_span(due - now)}, and released.")
    if (limited := _limited(facts)) is not None:
        return limited
    if "=" in facts["lane"] and (room := explain_room(facts)) is not None:
        return Explanation(*room)
    servers = _knowing(_servers(facts))
    slots = sum(server["slots"] for server in servers)
    running = sum(server["running"] for server in servers)
    ahead = _jobs(facts["ahead"])
    if running >= slots:
        return Explanation(
            "all_busy",
            f"All {_count(slots, 'slot')} of {_serving(servers)} are busy; {ahead} ahead of it.",
        )
    retry = (
        f" (attempt {facts['attempt'] + 1} of {facts['max_attempts']})" if facts["attempt"] else ""
    )
    return Explanation(
        "starting",
        f"It is ready and about to be claimed{retry}: {running} of {_count(slots, 'slot')} of "
        f"{_serving(servers)} are busy, {ahead} ahead of it.",
    )


def _punctual(facts: Mapping[str, Any]) -> Explanation | None:
    """Explain a job that waits for its time because a later submit may still change it."""
    now, due = facts["now"], facts["due_at"]
    match facts.get("punctual"):
        case "debounce":
            return Explanation(
                "debounced",
                f"It is debounced until {_moment(due)} ({_until(due, now)}): every submit with its "
                "unique key replaces its arguments and puts it off.",
            )
        case "throttle":
            return Explanation(
                "throttled",
                f"It is throttled until {_moment(due)} ({_until(due, now)}): another job with its "
                "unique key went before it. Every submit until then replaces its arguments.",
            )
    return None


def _limited(facts: Mapping[str, Any]) -> Explanation | None:
    """Explain what keeps a ready job waiting: a limit that is full, or the order of its key."""
    limits = facts.get("limits") or ()
    for limit in limits:
        if limit["order_key"] is not None and limit["order_state"] in _GOES_FIRST:
            return Explanation(
                "waiting_for_order",
                f"Job {limit['order_job']} of its order_key {limit['order_key']!r} goes before it, and "
                f"{_GOES_FIRST[limit['order_state']]}.",
            )
    for limit in limits:
        if limit["spacing"] is not None:
            if limit["next_at"] is not None and limit["next_at"] > facts["now"]:
                return Explanation(
                    "rate_reached",
                    f"Limit `{limit['name']}` is reached: the next job may start at "
                    f"{_moment(limit['next_at'])} ({_until(limit['next_at'], facts['now'])}).",
                )
        elif limit["name"] is not None and limit["running"] >= limit["most"]:
            holders = ", ".join(limit["holders"])
            more = ", …" if limit["running"] > len(limit["holders"]) else ""
            return Explanation(
                "limit_reached",
                f"Limit `{limit['name']}` is reached: {limit['running']} of {limit['most']} may run, "
                f"and do: {holders}{more}. It starts when one of them has ended.",
            )
    return None


def _no_server(facts: Mapping[str, Any]) -> Explanation | None:
    servers = _servers(facts)
    lane = facts["lane"].partition("/")[2].partition("#")[0]
    if not facts["workers"]:
        return Explanation(
            "no_worker", "No worker is alive; start one with `rota start module:app --role worker`."
        )
    if not servers:
        if (unfit := explain_unfit(facts)) is not None:
            return Explanation(*unfit)
        return Explanation(
            "no_worker_for_lane",
            f"No live worker serves lane `{lane}`: {_others(facts['workers'])} "
            "a capability it needs.",
        )
    if not _knowing(servers):
        where, task = f"of lane `{lane}`", f"task {facts['task']!r}"
        if facts["task"] == _COMMANDS:
            return Explanation(
                "commands_not_allowed",
                f"No live worker {where} runs programs: their operators haven't allowed it. One that "
                "may is started with `rota start module:app --role worker --allow-commands`.",
            )
        if facts["guarantee"] == Guarantee.EXACTLY_ONCE and any(s["remote"] for s in servers):
            return Explanation(
                "exactly_once_needs_a_node",
                f"It is exactly_once, which workers over HTTP are not given, and no live node {where} "
                f"knows {task}.",
            )
        if (nodes := sum(server["nodes"] for server in servers)) == 1:
            sentence = f"The one live worker {where} doesn't know {task}; it may run older code."
        else:
            workers = f"None of the {nodes} live workers"
            sentence = f"{workers} {where} knows {task}; they may run older code."
        return Explanation("task_unknown", sentence)
    return _no_key(facts, servers)


def _no_key(facts: Mapping[str, Any], servers: list[dict[str, Any]]) -> Explanation | None:
    key = facts["encrypted_with"]
    if key is None or any(s["remote"] or key in (s["keys"] or ()) for s in _knowing(servers)):
        return None
    return Explanation(
        "key_missing",
        f"Its payload is encrypted with the key {key!r}, which no live worker that could run it has: "
        "add it to their ROTA_ENCRYPTION_KEYS.",
    )


def _running(facts: Mapping[str, Any], max_run_time: float) -> Explanation:
    holder = _decoded(facts["holder"]) or {"name": str(facts["node"]), "silent": 0, "expires_in": 0}
    since = f"since {_moment(facts['started_at'])} ({_span(facts['now'] - facts['started_at'])})"
    attempt = f"attempt {facts['attempt']} of {facts['max_attempts']}"
    where = f"on node {holder['name']} {since}, {attempt}"
    if holder["expires_in"] < 0 or holder.get("state") == "dead":
        return Explanation(
            "node_lost",
            f"It was running {where}, but that node has been silent for "
            f"{format_duration(round(holder['silent']))}; "
            "a scheduler is about to return it to the queue.",
        )
    if facts["cancel_at"] is not None:
        return Explanation("stopping", f"It is being stopped: it runs {where}, and was cancelled.")
    asks = _asks(facts)
    return Explanation(
        "waiting_for_limit" if asks else "running",
        f"It is running {where}{asks}.{_limits(facts, holder, max_run_time)}",
    )


def _asks(facts: Mapping[str, Any]) -> str:
    """Say which limits its handler waits for."""
    waits = []
    for ask in facts.get("permits") or ():
        said = f"`limit:{ask['name']}`"
        if ask["most"] is not None and ask["running"] >= ask["most"]:
            said += f", whose {_count(ask['most'], 'place')} {', '.join(ask['holders'])} hold"
        elif ask["next_at"] is not None and ask["next_at"] > facts["now"]:
            said += f", which lets the next one in at {_moment(ask['next_at'])}"
        if ask["before"]:
            said += f", after {ask['before']} that asked before"
        waits.append(said)
    return f", and waits for {' and for '.join(waits)}" if waits else ""


def _limits(facts: Mapping[str, Any], holder: Mapping[str, Any], max_run_time: float) -> str:
    """Say how long it may run, and how often it must give a sign of life."""
    limits = []
    most, whose = facts["timeout"], "its timeout"
    if most is None:
        most, whose = facts["max_run_time"], f"the maximum run time of queue {_queue(facts)!r}"
    if most is None:
        most, whose = max_run_time, "the maximum run time of the installation"
    if most and most < _FOR_EVER:
        limits.append(f"after {format_duration(most)} ({whose})")
    if silent := holder.get("heartbeat_timeout"):
        limits.append(f"when it gives no sign of life for {format_duration(silent)}")
    if not limits:
        return ""
    last = ""
    if facts["alive_at"] is not None:
        last = f" Its last sign of life was {_until(facts['alive_at'], facts['now'])}."
    return f" It is stopped {', or '.join(limits)}.{last}"


def _waiting(facts: Mapping[str, Any]) -> Explanation:
    if facts.get("schedule"):
        return Explanation(
            "waiting", f"It waits for the run before it of schedule {facts['schedule']!r} to end."
        )
    return Explanation("waiting", "It waits for another job.")


def _ended(state: State, facts: Mapping[str, Any]) -> Explanation:
    took = ""
    if facts["started_at"] is not None and state is not State.CANCELLED:
        took = f" after {_span(facts['finished_at'] - facts['started_at'])}"
    error = f": {REASONS.get(facts['reason'], facts['reason'])}" if state is State.SKIPPED else ""
    if facts["error_type"] and state is State.FAILED:
        error = f": {facts['error_type']}: {facts['error_message']}"
    attempts = (
        f", attempt {facts['attempt']} of {facts['max_attempts']}" if facts["attempt"] else ""
    )
    return Explanation(
        state.label,
        f"It {_ENDINGS.get(state, state.label)} at "
        f"{_moment(facts['finished_at'])}{took}{attempts}{error}.",
    )


def _servers(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the workers that could run it, those that are alike together."""
    servers: list[dict[str, Any]] = _decoded(facts["servers"]) or []
    return servers


def _knowing(servers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [server for server in servers if server["knows_task"]]


def _decoded(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str | bytes) else value


def _queue(facts: Mapping[str, Any]) -> str:
    name: str = facts["lane"].partition("/")[2].partition("#")[0].partition("+")[0]
    return name


def _last_error(facts: Mapping[str, Any]) -> str:
    last = _decoded(facts["last_attempt"])
    error = (last or {}).get("error")
    return f"; the last one ended with {error['type']}: {error['message']}" if error else ""


def _others(workers: int) -> str:
    verbs = ("serves", "lacks") if workers == 1 else ("serve", "lack")
    return f"the {_count(workers, 'worker')} alive {verbs[0]} other queues or {verbs[1]}"


def _serving(servers: list[dict[str, Any]]) -> str:
    nodes = sum(server["nodes"] for server in servers)
    return f"the {_count(nodes, 'worker')} that {'serves' if nodes == 1 else 'serve'} it"


def _jobs(count: int) -> str:
    return "1 job is" if count == 1 else f"{count:,} jobs are"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _until(due: datetime, now: datetime) -> str:
    return f"in {_span(due - now)}" if due > now else f"{_span(now - due)} ago"


def _span(delta: timedelta) -> str:
    return format_duration(delta.total_seconds())
