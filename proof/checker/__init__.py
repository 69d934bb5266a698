"""Judges a history: was every promise kept? Knows nothing of Rota's own code.

Each rule is a function over the facts of a history, which gives what it found wrong, in sentences,
and counts what it looked at: a rule that has seen nothing has proved nothing, and the report says so.

    python -m proof.checker FOLDER
"""

from __future__ import annotations

import gc
from pathlib import Path

from proof.checker.attempts import at_most_once_starts_once, attempts_are_counted, no_extra_runs
from proof.checker.draining import drained_workers_start_nothing
from proof.checker.ending import nothing_is_stuck
from proof.checker.facts import Facts
from proof.checker.fairness import shares_are_fair
from proof.checker.fencing import effects_are_exactly_once, no_stale_write_is_taken
from proof.checker.flows import (
    every_run_ends,
    nothing_starts_after_a_cancel,
    results_are_those_of_the_steps_before,
    runs_of_a_schedule_do_not_overlap,
    steps_run_once_in_a_round,
    steps_start_by_their_rules,
)
from proof.checker.functions import (
    calls_have_their_callers_deadline,
    cancelled_functions_only_clean_up,
    function_steps_happen_once,
    functions_are_parked_for_contradictions,
    losers_of_races_are_let_go,
    replays_see_the_same,
    sleeps_are_not_early,
)
from proof.checker.hanging import hung_work_is_stopped
from proof.checker.leases import nothing_begins_without_a_lease
from proof.checker.limits import free_places_are_taken, keys_are_in_order, limits_are_kept
from proof.checker.maps import members_are_called_once
from proof.checker.operating import (
    deleted_schedules_leave_nothing,
    effects_of_once_happen_once,
    operations_work,
)
from proof.checker.overlap import schedules_do_not_overlap
from proof.checker.punctuality import schedules_fire_on_time
from proof.checker.quotas import depths_are_kept, depths_are_right
from proof.checker.rates import rates_are_kept
from proof.checker.report import Finding, Report, Rule, Violation, apply_rule
from proof.checker.resources import capacities_are_kept, large_jobs_are_not_starved
from proof.checker.schedules import every_occurrence_is_in_the_ledger
from proof.checker.shards import shards_have_one_owner
from proof.checker.signals import signals_are_not_lost, signals_are_taken_once
from proof.checker.soundness import the_history_is_sound
from proof.checker.sparing import jobs_that_are_not_kept_leave_a_trace
from proof.checker.submitting import a_key_names_one_job, no_job_is_lost
from proof.checker.summary import stats_of, title_of
from proof.checker.timing import starts_are_on_time
from proof.checker.unique import unique_jobs_are_single, unique_jobs_serve_all_submits

__all__ = ["RULES", "Finding", "Report", "Rule", "Violation", "check"]

RULES = (
    Rule(0, "the history itself", ("beats", "client records", "faults"), the_history_is_sound),
    Rule(1, "no acknowledged job is lost", ("submissions", "acknowledged", "jobs"), no_job_is_lost),
    Rule(2, "a key names one job", ("acknowledged keys",), a_key_names_one_job),
    Rule(
        3, "every occurrence is in the ledger", ("schedules", "occurrences", "jobs of schedules"),
        every_occurrence_is_in_the_ledger,
    ),
    Rule(4, "at_most_once starts once", ("at_most_once jobs",), at_most_once_starts_once),
    Rule(5, "attempts are counted, tokens rise", ("starts", "tokens"), attempts_are_counted),
    Rule(6, "no stale write is taken", ("final tokens", "guarded writes"), no_stale_write_is_taken),
    Rule(7, "effects are exactly once", ("exactly_once jobs", "effects"), effects_are_exactly_once),
    Rule(8, "schedules don't overlap", ("jobs that ran",), schedules_do_not_overlap),
    Rule(9, "nothing is stuck, ends are right", ("jobs", "nodes"), nothing_is_stuck),
    Rule(10, "no extra runs", ("succeeded jobs", "jobs without a fault"), no_extra_runs),
    Rule(11, "starts are on time", ("first starts", "jobs due in calm"), starts_are_on_time),
    Rule(12, "a shard has one owner", ("shards", "takeovers"), shards_have_one_owner),
    Rule(13, "nothing begins without a lease", ("silences",), nothing_begins_without_a_lease),
    Rule(14, "operations work", ("operations",), operations_work),
    Rule(
        15, "deleted schedules leave nothing", ("jobs in line", "places"),
        deleted_schedules_leave_nothing,
    ),
    Rule(16, "effects of once happen once", ("effects of once",), effects_of_once_happen_once),
    Rule(
        17, "schedules fire on time", ("occurrences due in calm", "beside one that is spoilt"),
        schedules_fire_on_time,
    ),
    Rule(18, "hung work is stopped", ("limits in calm", "stopped"), hung_work_is_stopped),
    Rule(
        19, "steps run once in a round", ("steps", "in later rounds"), steps_run_once_in_a_round
    ),
    Rule(
        20, "steps start by their rules", ("steps that ran", "others"), steps_start_by_their_rules
    ),
    Rule(
        21, "nothing starts after a cancel", ("jobs of cancelled runs",),
        nothing_starts_after_a_cancel,
    ),
    Rule(22, "every run ends", ("runs",), every_run_ends),
    Rule(
        23, "steps of functions happen once", ("functions", "tries", "returned"),
        function_steps_happen_once,
    ),
    Rule(24, "replays see the same", ("branches", "replayed"), replays_see_the_same),
    Rule(25, "sleeps are not early", ("sleeps",), sleeps_are_not_early),
    Rule(26, "signals are taken once", ("signals taken",), signals_are_taken_once),
    Rule(27, "signals are not lost", ("signals sent", "waits"), signals_are_not_lost),
    Rule(28, "cancelled functions only clean up", ("told",), cancelled_functions_only_clean_up),
    Rule(
        29, "functions are parked for contradictions", ("replays", "parked", "quarantined"),
        functions_are_parked_for_contradictions,
    ),
    Rule(30, "losers of races are let go", ("losers",), losers_of_races_are_let_go),
    Rule(
        31, "calls have their callers' deadline", ("called runs", "deadlines"),
        calls_have_their_callers_deadline,
    ),
    Rule(32, "limits are kept", ("places",), limits_are_kept),
    Rule(33, "keys are in order", ("turns",), keys_are_in_order),
    Rule(34, "free places are taken", ("keyed jobs due in calm",), free_places_are_taken),
    Rule(35, "shares are fair", ("pairs of keys",), shares_are_fair),
    Rule(36, "unique jobs are single", ("jobs after another",), unique_jobs_are_single),
    Rule(
        37, "unique jobs serve all submits", ("submits", "answered with another's"),
        unique_jobs_serve_all_submits,
    ),
    Rule(38, "drained workers start nothing", ("drains in calm",), drained_workers_start_nothing),
    Rule(
        39, "members of maps are called once", ("maps", "members", "maps in calm"),
        members_are_called_once,
    ),
    Rule(40, "rates are kept", ("starts under a rate",), rates_are_kept),
    Rule(41, "depths are kept", ("jobs of limited queues",), depths_are_kept),
    Rule(42, "depths are right", ("depths",), depths_are_right),
    Rule(
        43, "results are those of the steps before", ("results", "taken"),
        results_are_those_of_the_steps_before,
    ),
    Rule(
        44, "runs of a schedule don't overlap", ("runs of schedules",),
        runs_of_a_schedule_do_not_overlap,
    ),
    Rule(
        45, "jobs that aren't kept leave a trace", ("jobs of such queues", "traces", "asked again"),
        jobs_that_are_not_kept_leave_a_trace,
    ),
    Rule(46, "capacities are kept", ("starts with resources",), capacities_are_kept),
    Rule(47, "large jobs are not starved", ("largest jobs in calm",), large_jobs_are_not_starved),
)  # fmt: skip


def check(folder: Path) -> Report:
    """Read a history and hold every rule against it."""
    # A million records that stay: looking for cycles among them again and again finds none.
    collecting = gc.isenabled()
    gc.disable()
    try:
        facts = Facts(folder)
        findings = [apply_rule(rule, facts) for rule in RULES]
        return Report(title_of(facts), findings, stats_of(facts))
    finally:
        if collecting:
            gc.enable()
