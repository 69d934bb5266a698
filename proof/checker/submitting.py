"""What was acknowledged is there, once; what was refused is not; and nothing is there of itself."""

from __future__ import annotations

from proof import keyed_tasks as keyed
from proof.checker.facts import Facts, JobRow, Request
from proof.checker.report import Found, Tally, line

# Who write no record of each job that clients have.
_OF_OTHERS = {*keyed.UNIQUE, keyed.SHARED, keyed.PACED, *keyed.OF_SPARED}


def no_job_is_lost(facts: Facts, tally: Tally) -> Found:
    """An answer "acknowledged" is a promise, "refused" is one too, "unknown" is none.

    A client that has neither id nor answer writes the key: then the key stands for the job.
    """
    for request in facts.requests.values():
        tally["submissions"] += 1
        tally["acknowledged"] += bool(request.acknowledged)
        row = _find(facts, request)
        problem = _problem(facts, request, row)
        if problem:
            yield f"job {request.job}", problem, _evidence(facts, request, row)
    yield from _unasked(facts, tally)


def _find(facts: Facts, request: Request) -> JobRow | None:
    if request.by_key:
        return next(iter(facts.by_key.get(request.job, ())), None)
    return facts.jobs.get(request.job)


def _problem(facts: Facts, request: Request, row: JobRow | None) -> str | None:
    if row is None:
        return "was acknowledged, and is not in the database" if request.acknowledged else None
    refused = request.refused and not request.open and not request.acknowledged
    # Refused because another submission has the key: then the job is that one's.
    if refused and not (request.by_key and request.key in facts.open_keys):
        return "was refused, and is in the database nevertheless"
    if row.task != request.task and not request.by_key:
        return f"was submitted as {request.task}, and is a {row.task} in the database"
    return None


def _unasked(facts: Facts, tally: Tally) -> Found:
    for row in facts.jobs.values():
        tally["jobs"] += 1
        # Whether its schedule really made it, the ledger's rule looks at.
        asked = row.schedule_id is not None or row.run_id is not None or row.id in facts.requests
        asked = asked or row.task in _OF_OTHERS
        if not asked and row.key not in facts.open_keys:
            sentence = "is in the database, and neither a client nor a schedule asked for it"
            yield f"job {row.id}", sentence, (line("db-job", row),)
    for row in facts.doubled:
        evidence = (line("db-job", facts.jobs[row.id]), line("db-job", row))
        yield f"job {row.id}", "is in the database twice", evidence


def a_key_names_one_job(facts: Facts, tally: Tally) -> Found:
    """Whoever submits under a key gets the same job, and the database has one job of that key."""
    for key, ids in facts.acknowledged_keys.items():
        tally["acknowledged keys"] += 1
        kept = facts.keys.get(key)
        if len(ids) > 1:
            sentence = f"was acknowledged as {len(ids)} different jobs"
            yield f"key {key}", sentence, _lines_of_key(facts, key)
        elif kept is None:
            sentence = (
                "was acknowledged, and is forgotten: a repeated submit would make another job"
            )
            yield f"key {key}", sentence, _lines_of_key(facts, key)
        elif ids and kept.job_id not in ids:
            sentence = f"was acknowledged as another job than the database has, {kept.job_id}"
            yield f"key {key}", sentence, _lines_of_key(facts, key)
    for key, rows in facts.by_key.items():
        if len(rows) > 1:
            evidence = tuple(line("db-job", row) for row in rows)
            yield f"key {key}", f"has {len(rows)} jobs in the database", evidence


def _evidence(facts: Facts, request: Request, row: JobRow | None) -> tuple[str, ...]:
    lines = [line("clients", record) for record in facts.records_of(request.job)]
    return (*lines, line("db-job", row)) if row else tuple(lines)


def _lines_of_key(facts: Facts, key: str) -> tuple[str, ...]:
    lines = [line("clients", record) for record in facts.records_of(key)]
    kept = facts.keys.get(key)
    return (*lines, line("db-submit_key", kept)) if kept else tuple(lines)
