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
from rota.files.exports import Format, export_jobs
from rota.model import FinalStateName

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
) -> None:  # fmt: skip
    """Export all jobs that ended in a period, with their payloads, results and attempts.

    JSON lines are compressed if the name of the file ends with .gz.
    """
    first, end = session.at(since), session.at(until) or session.now
    assert first is not None
    jobs = session.app.history.jobs(first, end, state=state, task=task, queue=queue)
    if str(file) == "-":

        async def show() -> None:
            async for job in jobs:
                sys.stdout.buffer.write(msgspec.json.encode(job) + b"\n")
            sys.stdout.buffer.flush()

        session.run(show())
        return
    chosen = file_format or ("parquet" if file.suffix == ".parquet" else "jsonl")
    written = session.run(export_jobs(jobs, file, chosen))
    if session.screen.structured:
        session.screen.document({"file": str(file), "format": chosen, "jobs": written})
    else:
        session.screen.say(f"{count(written, 'job')} written to {file}.")
