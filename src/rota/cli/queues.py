"""`rota queues`: list, pause, resume and configure queues."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rota.cli.options import argument, option
from rota.cli.output import state
from rota.cli.session import Session, callback, command
from rota.cli.times import parse_duration
from rota.core.durations import format_duration
from rota.errors import ConfigError
from rota.model import LimitStatus, QueueStatus

Name = Annotated[str, argument("NAME", "Name of the queue.")]

group = typer.Typer(help="List, pause, resume and configure queues.")


@callback(group)
@command(group, "list")
def list_queues(session: Session) -> None:
    """List queues with the numbers of their jobs, their lag and their state."""
    queues = session.run(session.app.queues.list())
    numbers = ("ready", "running", "scheduled", "lag", "max run time", "max depth")
    session.screen.listing(
        queues, "No queues. The first submit to a queue creates it.", ("queue", *numbers, "state"),
        (
            (
                queue.name, _about(queue.ready, queue), f"{queue.running:,}",
                _about(queue.scheduled, queue),
                "-" if queue.lag is None else format_duration(queue.lag),
                "-" if queue.max_run_time is None else format_duration(queue.max_run_time),
                "-" if queue.max_depth is None else f"{queue.max_depth:,}",
                state("paused") if queue.paused_at else "full" if queue.full_since else "",
            )
            for queue in queues
        ),
        right=numbers,
    )  # fmt: skip


def _about(number: int, queue: QueueStatus) -> str:
    """Format a number; of many jobs it is an estimate."""
    return f"{number:,}" if queue.exact or not number else f"about {number:,}"


@command(group, "pause")
def pause(
    session: Session,
    name: Name,
    new: Annotated[bool, option("Allow a queue that no job and no task has used yet.")] = False,
) -> None:
    """Pause a queue: none of its jobs start. Running jobs continue."""
    session.run(session.app.queues.pause(name, must_exist=not new))
    session.screen.answer({"queue": name, "paused": True}, f"paused {name}")


@command(group, "resume")
def resume(session: Session, name: Name) -> None:
    """Resume a paused queue."""
    session.run(session.app.queues.resume(name))
    session.screen.answer({"queue": name, "paused": False}, f"resumed {name}")


@command(group, "set")
def set_queue(
    session: Session,
    name: Name,
    max_run_time: Annotated[
        str | None,
        option("Maximum run time: 30m, 2h; none for the installation's.", metavar="DURATION"),
    ] = None,
    concurrency: Annotated[
        str | None,
        option("Jobs that may run at a time in the whole cluster; none: no limit.", metavar="N"),
    ] = None,
    concurrency_per_key: Annotated[
        str | None,
        option("The same for jobs with one concurrency_key; none: no limit.", metavar="N"),
    ] = None,
    rate: Annotated[
        str | None, option("Starts in a period: 100/minute, 5/s; none: no limit.", metavar="RATE")
    ] = None,
    rate_burst: Annotated[
        int | None, option("Starts that may come at once, with --rate.", metavar="N")
    ] = None,
    policy: Annotated[
        str | None,
        option(
            "Which jobs start first: priority, fair (between fairness keys), fifo or edf (deadline).",
            metavar="POLICY",
        ),
    ] = None,
    max_depth: Annotated[
        str | None,
        option(
            "Jobs that have not ended, from which on submits are refused; none: no limit.",
            metavar="N",
        ),
    ] = None,
    history: Annotated[
        str | None,
        option(
            "What is kept of jobs that succeed: all, failures (of an attempt), sample:1% or none.",
            metavar="MODE",
        ),
    ] = None,
) -> None:
    """Set the limits and the policy of a queue, and what it keeps: how long, how many and how often
    its jobs run."""
    settings: dict[str, Any] = {}
    if max_run_time is not None:
        settings["max_run_time"] = None if max_run_time == "none" else parse_duration(max_run_time)
    if policy is not None:
        settings["policy"] = policy
    if history is not None:
        settings["history"] = history
    if max_depth is not None:
        settings["max_depth"] = _number("--max-depth", max_depth)
    if concurrency is not None:
        settings["concurrency"] = _number("--concurrency", concurrency)
    if concurrency_per_key is not None:
        settings["concurrency_per_key"] = _number("--concurrency-per-key", concurrency_per_key)
    if rate_burst is not None and rate in (None, "none"):
        raise ConfigError("--rate-burst needs --rate", field="rate_burst")
    if rate is not None:
        settings["rate"] = None if rate == "none" else rate
    if not settings:
        raise ConfigError(
            "nothing to set: give --max-run-time, --concurrency, --concurrency-per-key, --rate, "
            "--policy, --max-depth or --history"
        )
    burst: dict[str, Any] = {} if rate_burst is None else {"rate_burst": rate_burst}
    session.run(session.app.queues.configure(name, **settings, **burst))
    said = [_said(field, value) for field, value in settings.items()]
    session.screen.answer({"queue": name, **settings}, f"{name}: {', '.join(said)}")


def _said(field: str, value: Any) -> str:
    if field == "max_run_time":
        return (
            f"maximum run time {'of the installation' if value is None else format_duration(value)}"
        )
    words = {"max_depth": "maximum depth"}.get(field, field.replace("_", " "))
    shown = f"{value:,}" if field == "max_depth" and value is not None else value
    return f"{words} {'without limit' if value is None else shown}"


def _number(option_name: str, text: str) -> int | None:
    if text == "none":
        return None
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"{option_name} is a whole number, or none, not {text!r}")
    return int(text)


@command(group, "undo")
def undo(
    session: Session,
    name: Name,
    entry: Annotated[int, argument("ENTRY", "Id of the change, as `rota audit --json` shows it.")],
) -> None:
    """Undo a pause, a resume, a setting or a weight, unless it was changed again."""
    queue = session.run(session.app.queues.undo(name, entry))
    session.screen.answer(queue, f"undid change {entry} of {name}")


@command(group, "shares")
def list_shares(session: Session, name: Name) -> None:
    """List the shares of a fair queue: weights, and the seconds in which their jobs have run."""
    shares = session.run(session.app.queues.shares(name))
    numbers = ("weight", "served", "running")
    session.screen.listing(
        shares, f"No shares in {name}. `rota queues set {name} --policy fair` makes it a fair queue.",
        ("key", *numbers, "waiting"),
        (
            (
                one.key or "(none)", f"{one.weight:g}", format_duration(one.served),
                f"{one.running:,}", "yes" if one.waiting else "",
            )
            for one in shares
        ),
        right=numbers,
    )  # fmt: skip


@command(group, "weight")
def set_weight(
    session: Session,
    name: Name,
    key: Annotated[str, argument("KEY", "The fairness key; '' for jobs without one.")],
    weight: Annotated[str, argument("WEIGHT", "Its weight: 0.5, 10; none for the default, 1.")],
) -> None:
    """Set the weight of a fairness key: its part of the slots, relative to other keys."""
    try:
        number = None if weight == "none" else float(weight)
    except ValueError:
        raise ConfigError(f"WEIGHT is a number, or none, not {weight!r}") from None
    session.run(session.app.queues.set_weight(name, key, number))
    answer = {"queue": name, "fairness_key": key, "weight": number}
    session.screen.answer(
        answer, f"{name}: weight of {key or 'no key'}: {1 if number is None else number:g}"
    )


@command(group, "limits")
def list_limits(session: Session) -> None:
    """List the limits that are in use: how many jobs run under each, and how many groups wait."""
    limits = session.run(session.app.queues.limits())
    session.screen.listing(
        limits, "No limit is in use.", ("limit", "most", "running", "waiting"),
        ((one.name, _most(one), f"{one.running:,}", f"{one.waiting:,}") for one in limits),
        right=("most", "running", "waiting"),
    )  # fmt: skip


def _most(limit: LimitStatus) -> str:
    """Return how many may run at a time, or how often one may start."""
    if limit.most is not None:
        return f"{limit.most:,}"
    return f"one in {format_duration(limit.spacing or 0)}"
