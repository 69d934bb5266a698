"""Durable functions: what is recorded isn't done again, and every replay sees the same.

Judged by what the replays themselves wrote down (`proof.history.Sight`). A round begins with each
resume, retry and restart: within one, a place of the body has one result. A process that lost its lease
may still be inside a step for a while; what it does then is not taken, and isn't counted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from proof.checker.facts import CANCELLED, SKIPPED, SUCCEEDED, CheckpointRow, Facts, JobRow
from proof.checker.report import Found, Tally, line
from proof.history import Sight

_CALL, _SLEEP, _NOTE = 2, 4, 6  # kinds of checkpoints
_MADE = re.compile(r"\S*value-\d+")
_JOB = re.compile(r"([0-9a-f-]{36})/(\d+)")
_SMALL = 0.002
_UNAWARE = 12.0  # seconds in which a function learns of its cancel
_ERROR = "!"
_CRASHES = {"lost", "crashed"}


def function_steps_happen_once(facts: Facts, tally: Tally) -> Found:
    """A step whose result the function was given isn't done again in that round."""
    returned = {s.place for sights in facts.sights.values() for s in sights if _ended_well(s)}
    for run, sights in facts.sights.items():
        seen: dict[tuple[int, str], Sight] = {}
        made = {(s.place, s.value) for s in sights if s.event == "done" and s.value}
        tally["functions"] += 1
        for sight in sights:
            place = (sight.round, sight.place)
            if sight.event == "try":
                tally["tries"] += 1
                before = seen.get(place)
                if before is not None and sight.token >= before.token:
                    sentence = f"did step {sight.place} again after its result was recorded"
                    yield f"run {run}", sentence, _lines([before, sight])
            elif sight.event == "saw" and not sight.value.startswith(_ERROR):
                seen.setdefault(place, sight)
                problem = _foreign(facts, sight, made, returned)
                if problem:
                    yield f"run {run}", problem, _lines([sight])
    yield from _driver_ends(facts, tally)


def _ended_well(sight: Sight) -> bool:
    return sight.event == "left" and sight.value == "ok"


def _foreign(
    facts: Facts, sight: Sight, made: set[tuple[str, str]], returned: set[str]
) -> str | None:
    """A result that nobody has made."""
    value = sight.value
    if _MADE.fullmatch(value) and (sight.place, value) not in made and value not in returned:
        return f"saw {value} at {sight.place}, which no try of that step returned"
    if found := _JOB.fullmatch(value):
        job = facts.jobs.get(found[1])
        if job is None or job.state != SUCCEEDED or job.token != int(found[2]):
            return f"saw the result of job {found[1]} under token {found[2]}, which did not succeed"
    return None


def _driver_ends(facts: Facts, tally: Tally) -> Found:
    """The job of a function succeeds under a token under which the function returned."""
    for job in facts.jobs.values():
        sights = facts.sights.get(job.run_id or "")
        if job.step != 0 or not sights or job.state != SUCCEEDED:
            continue
        tally["returned"] += 1
        if not any(_ended_well(sight) and sight.token == job.token for sight in sights):
            sentence = f"succeeded under token {job.token}, under which its function did not return"
            yield f"run {job.run_id}", sentence, (line("db-job", job), *_lines(sights[-8:]))


def replays_see_the_same(facts: Facts, tally: Tally) -> Found:
    """Of two replays of a round by the same code, one saw in each branch what the other did, or less.
    And with any code nothing new is done before all that the history has was asked for."""
    for run, sights in facts.sights.items():
        yield from _new_before_old(run, sights)
        codes = {sight.token: sight.value for sight in sights if sight.event == "open"}
        replays: dict[tuple[int, str, str | None], dict[int, list[Sight]]] = defaultdict(dict)
        for sight in sights:
            if sight.event == "saw":
                place = (sight.round, _branch(sight), codes.get(sight.token))
                replays[place].setdefault(sight.token, []).append(sight)
        for tokens in replays.values():
            tally["branches"] += 1
            tally["replayed"] += len(tokens) > 1
            longest: list[Sight] = []
            for _, replay in sorted(tokens.items()):
                for one, other in zip(longest, replay, strict=False):
                    if (one.place, one.value) != (other.place, other.value):
                        if _is_unused(one, sights):
                            break
                        sentence = (
                            f"saw {other.value!r} at {other.place}, and a replay before it saw "
                            f"{one.value!r} at {one.place}"
                        )
                        yield f"run {run}", sentence, _lines([one, other])
                        break
                longest = max(longest, replay, key=len)


def _is_unused(sight: Sight, sights: list[Sight]) -> bool:
    """Whether it is a time, or the end of a sleep, by which nothing was done. Both are recorded before
    anything is done by them: so what was only looked at may differ."""
    of_token = [each for each in sights if each.token == sight.token]
    is_time = sight.value is not None and sight.value.endswith("+00:00")
    is_sleep = any(each.event == "asked" and each.place == sight.place for each in of_token)
    later = (each.event for each in of_token if each.at > sight.at)
    return (is_time or is_sleep) and not any(event in ("try", "asked", "saw") for event in later)


def _branch(sight: Sight) -> str:
    return sight.place.rpartition(".")[0]


def _new_before_old(run: str, sights: list[Sight]) -> Found:
    seen: dict[tuple[int, str], Sight] = {}
    tried: dict[tuple[int, str], Sight] = {}  # the first, of a replay in a branch
    for sight in sights:
        if sight.event == "try":
            tried.setdefault((sight.token, _branch(sight)), sight)
        elif sight.event == "saw" and not _is_lost(sight, sights):
            before = seen.setdefault((sight.round, sight.place), sight)
            new = tried.get((sight.token, _branch(sight)))
            if new is None or new.place == sight.place or before.token >= sight.token:
                continue
            if before.at < new.at:
                sentence = f"did {new.place} before {sight.place}, which an earlier replay had done"
                yield f"run {run}", sentence, _lines([before, new, sight])


def _is_lost(sight: Sight, sights: list[Sight]) -> bool:
    """Whether it was the last that a replay saw before it could not write: the winner of a race,
    say, which is recorded with what follows it."""
    later = [each for each in sights if each.token == sight.token and each.at > sight.at]
    left = [each.value for each in later if each.event == "left"]
    return left in (["StoreUnavailable"], ["Interrupted"]) and len(later) == 1


def sleeps_are_not_early(facts: Facts, tally: Tally) -> Found:
    """Neither by the history's clock nor by the database's, which may be set meanwhile."""
    for run, sights in facts.sights.items():
        asked: dict[str, Sight] = {}
        over: set[str] = set()
        wanted = {sight.seconds for sight in sights if sight.event == "asked"} | {0.3}
        for sight in sights:
            if sight.event == "asked" and not sight.value:
                asked.setdefault(sight.place, sight)
            elif sight.event == "saw" and sight.place in asked and sight.place not in over:
                over.add(sight.place)
                tally["sleeps"] += 1
                before = asked[sight.place]
                shown = facts.meta.database(sight.at) - facts.meta.database(before.at)
                slept = max(sight.at - before.at, shown)
                if not sight.value.startswith(_ERROR) and slept < before.seconds - _SMALL:
                    sentence = f"slept {slept:.3f} s at {sight.place} in place of {before.seconds}"
                    yield f"run {run}", sentence, _lines([before, sight])
        for row in facts.checkpoints.get(run, ()):
            if row.kind == _SLEEP and row.wake_at is not None:
                seconds = row.wake_at - row.created_at
                if min(abs(seconds - each) for each in wanted) > _SMALL:
                    sentence = f"has a sleep of {seconds:.3f} s, which it did not ask for"
                    yield f"run {run}", sentence, (line("db-checkpoint", row),)


def cancelled_functions_only_clean_up(facts: Facts, tally: Tally) -> Found:
    """From when they are told, which is soon: after what they do at that moment."""
    for run, sights in facts.sights.items():
        told: dict[int, Sight] = {}
        yield from _unaware(facts, run, sights)
        for sight in sights:
            if sight.event == "told":
                tally["told"] += 1
                told.setdefault(sight.round, sight)
            elif sight.event == "try" and not sight.place.startswith("clean"):
                before = told.get(sight.round)
                if before is not None and sight.token >= before.token:
                    sentence = f"began step {sight.place} after it was told of its cancel"
                    yield f"run {run}", sentence, _lines([before, sight])


def _unaware(facts: Facts, run: str, sights: list[Sight]) -> Found:
    row = facts.runs.get(run)
    if row is None or row.cancel_at is None:
        return
    newest = max(sight.token for sight in sights)
    known = facts.at(row.cancel_at) + _UNAWARE + facts.meta.clock_error
    for sight in sights:
        own = sight.round == row.round and sight.token == newest
        if own and sight.event == "try" and sight.at > known and sight.place[:5] != "clean":
            late = sight.at - facts.at(row.cancel_at)
            sentence = f"began step {sight.place} {late:.1f} s after it was cancelled"
            yield f"run {run}", sentence, (line("db-run", row), *_lines([sight]))


def functions_are_parked_for_contradictions(facts: Facts, tally: Tally) -> Found:
    """Only where the code was changed; and blamed for crashes only while they come no further."""
    for run, sights in facts.sights.items():
        codes: list[Sight] = []
        for sight in sights:
            if sight.event == "open":
                tally["replays"] += 1
                codes.append(sight)
            elif sight.event == "left" and sight.value == "Mismatch":
                tally["parked"] += 1
                if not _may_contradict(codes, sight.token):
                    sentence = "was parked, and its code has not been changed"
                    yield f"run {run}", sentence, _lines([*codes, sight])
    for job in facts.jobs.values():
        if job.step == 0 and job.run_id in facts.sights and _is_quarantined(job):
            tally["quarantined"] += 1
            if found := _came_further(facts, job):
                sentence = f"was quarantined, and had come further since: to {found.name}"
                yield (
                    f"run {job.run_id}",
                    sentence,
                    (line("db-job", job), line("db-checkpoint", found)),
                )


def _is_quarantined(job: JobRow) -> bool:
    return job.error is not None and job.error.type == "Quarantined"


def _may_contradict(codes: list[Sight], token: int) -> bool:
    own = next((code for code in codes if code.token == token), None)
    if own is None:
        return False
    version, _, change = own.value.partition(" ")
    others = {code.value.partition(" ")[0] for code in codes if code.token < token}
    if change == "patched":
        return version == "1" and "2" in others
    return change == "contradicts" and bool(others - {version})


def _came_further(facts: Facts, job: JobRow) -> CheckpointRow | None:
    """What it recorded after the first of the crashes that it is blamed for."""
    crashes = sorted(each.token for each in job.attempts or () if each.outcome in _CRASHES)
    blamed = crashes[-facts.meta.max_crashes :]
    own = facts.checkpoints.get(job.run_id or "", ())
    return next((row for row in own if blamed and blamed[0] < row.token <= blamed[-1]), None)


def losers_of_races_are_let_go(facts: Facts, tally: Tally) -> Found:
    """Once a race is closed, what its losers had called is stopped, unless it is left."""
    leases = 3 * facts.meta.lease_seconds
    for run, rows in facts.checkpoints.items():
        closed = {
            row.name.removesuffix(".closed"): row
            for row in rows
            if row.kind == _NOTE and row.name.endswith(".closed")
        }
        left = any(s.event == "asked" and s.value == "leave" for s in facts.sights.get(run, ()))
        for row in rows:
            job = facts.jobs.get(row.job_id or "")
            if row.kind != _CALL or row.state != SKIPPED or job is None or job.task != "fn_long":
                continue
            tally["losers"] += 1
            race = next((each for name, each in closed.items() if _of(row.name, name)), None)
            if race is None or left:
                continue
            late = (job.finished_at or race.created_at) - race.created_at
            if job.state != CANCELLED and late > leases + facts.meta.clock_error:
                sentence = f"let job {job.id} go on for {late:.1f} s after it had lost a race"
                yield f"run {run}", sentence, (line("db-checkpoint", row), line("db-job", job))


def _of(name: str, race: str) -> bool:
    return name.startswith(f"{race}.")


def calls_have_their_callers_deadline(facts: Facts, tally: Tally) -> Found:
    """The earlier of both; and a call is there once."""
    rules = {(s.run_id, s.number): s.rule for steps in facts.steps.values() for s in steps}
    children: dict[tuple[str, int], int] = defaultdict(int)
    for run in facts.runs.values():
        parent = facts.runs.get(run.parent_id or "")
        if parent is None or run.parent_step is None:
            continue
        tally["called runs"] += 1
        children[parent.id, run.parent_step] += 1
        if children[parent.id, run.parent_step] > parent.round:
            yield f"run {parent.id}", f"has started run {run.id} again", (line("db-run", run),)
        if parent.deadline_at is None or rules.get((parent.id, run.parent_step)) == 5:
            continue
        tally["deadlines"] += 1
        if run.deadline_at is None or run.deadline_at > parent.deadline_at + _SMALL:
            sentence = "has a later deadline than the run that called it"
            yield f"run {run.id}", sentence, (line("db-run", run), line("db-run", parent))


def _lines(sights: Iterable[Sight]) -> tuple[str, ...]:
    return tuple(line("functions", sight) for sight in sights)
