"""`rota history`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec

from rota.cli.jobs import QueueOption, TaskOption
from rota.cli.options import TIMES, argument, moment, option
from rota.cli.output import count
from rota.cli.session import Session, command, make_group
from rota.cli.times import When
from rota.errors import ConfigError
from rota.files.export_parts import Request, check_same, export_in_parts, find_begun
from rota.files.exports import Format, export_jobs
from rota.model import FinalStateName
from rota.operations.history import PartitionSize

group = make_group("Export the jobs that have ended.")


@command(group, "export")
def export(
    session: Session,
    file: Annotated[Path, argument("FILE", "File to write; - for the standard output.")],
    since: Annotated[When, moment(f"Start of the period: {TIMES}", "--from")],
    until: Annotated[When | None, moment("End of the period, not included.", "--to")] = None,
    file_format: Annotated[
        Format | None,
        option("Format of the file. (default: parquet for names that end with .parquet, otherwise"
               " JSON lines)", "--format"),
    ] = None,
    state: Annotated[FinalStateName | None, option("Only jobs that ended like this.")] = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    resume: Annotated[
        bool,
        option("Keep what is written when interrupted, and go on there the next time. JSON lines only."),
    ] = False,
) -> None:  # fmt: skip
    """Export all jobs that ended in a period, with their payloads, results and attempts.

    JSON lines are compressed if the name of the file ends with .gz.
    """
    first, end = session.at(since), session.at(until) or session.now
    assert first is not None
    if end < first:
        raise ConfigError(
            f"the period ends ({end:%Y-%m-%d %H:%M:%S}) before it begins: exchange --from and --to"
        )
    if resume:
        request = Request(
            first, min(end, session.now), state, task, queue, session.namespace,
            (since.moment, None if until is None else until.moment),
        )  # fmt: skip
        _export_in_parts(session, file, file_format, request)
        return
    jobs = session.app.history.jobs(first, end, state=state, task=task, queue=queue)
    if str(file) == "-":

        async def show() -> None:
            async for job in jobs:
                sys.stdout.buffer.write(msgspec.json.encode(job) + b"\n")
            sys.stdout.buffer.flush()

        session.run(show())
        return
    chosen = file_format or ("parquet" if file.suffix == ".parquet" else "jsonl")
    _say_written(session, file, chosen, session.run(export_jobs(jobs, file, chosen)))


def _export_in_parts(
    session: Session, file: Path, file_format: Format | None, asked: Request
) -> None:
    if str(file) == "-" or (file_format or file.suffix.lstrip(".")) == "parquet":
        raise ConfigError("--resume is for files of JSON lines")
    begun = find_begun(file)
    if begun is not None:
        # The end of the period and moments such as -1d are those of the export that was begun.
        asked = check_same(asked, begun, file)
    written = session.run(export_in_parts(session.app.history, asked, file))
    _say_written(session, file, "jsonl", written)


def _say_written(session: Session, file: Path, chosen: Format, written: int) -> None:
    if session.screen.structured:
        session.screen.document({"file": str(file), "format": chosen, "jobs": written})
    else:
        session.screen.say(f"{count(written, 'job')} written to {file}.")


@command(group, "partitions")
def partitions(
    session: Session,
    by: Annotated[
        PartitionSize | None, option("Make the partitions from tomorrow on days, or hours.")
    ] = None,
) -> None:
    """List the partitions of the history with their sizes, or set whether they are days or hours."""
    if by is not None:
        session.run(session.app.history.partition_by(by))
        session.screen.answer({"partitions": by}, f"the history has a partition for each {by}")
        return
    found = session.run(session.app.history.partitions())
    session.screen.listing(
        found, "No partitions.", ("partition", "jobs (estimate)", "size"),
        ((one.name, "-" if one.jobs is None else f"{one.jobs:,}", f"{one.bytes / 1e6:,.1f} MB")
         for one in found),
        right=("jobs (estimate)", "size"),
    )  # fmt: skip
