"""`make sweep`: a crash, a pause and a lost answer at every boundary of every transaction that writes.

A case is a failpoint and an action. Its victim is a process of a cluster at work, with that failpoint
armed; the others are healthy. It dies there; or stops there, until it was declared dead and its work was
given to others, and then goes on; or is told that the line was cut. A failpoint that is never reached is
a failure of the sweep. When all victims of a chunk are through, the cluster must come to rest by itself,
with every promise kept (`proof.checker`).

Two stages. In the *crowd*, victims come and go beside a healthy node and clients, several at a time.
*Alone*, a victim is the only scheduler there is, with a dead worker's jobs to be returned, schedules
that are overdue, and jobs to be released: so that what it dies in is never an empty transaction.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from proof.stage import Alone, Crowd, Stage
from rota.lib.failpoints import QUERY_POINTS, TRANSACTION_POINTS, TRANSACTIONS
from rota.store.embedded import open_embedded

Action = Literal["kill", "stop", "error"]
ACTIONS: tuple[Action, ...] = ("kill", "stop", "error")


class Target(msgspec.Struct, frozen=True):
    """A query or transaction whose boundaries are swept, and how a victim gets there."""

    name: str
    at: int = 1  # which of its times: by then the victim is at work
    who: Literal["node", "client", "scheduler"] = "node"  # scheduler: alone
    also: str = ""  # further failpoints that lead there
    provoked: Literal["", "stop", "join"] = ""  # by its being asked to stop, or another's joining

    @property
    def points(self) -> tuple[str, ...]:
        return TRANSACTION_POINTS if self.name in TRANSACTIONS else QUERY_POINTS


class Case(msgspec.Struct, frozen=True):
    target: Target
    point: str
    action: Action

    @property
    def name(self) -> str:
        return f"{self.target.name}:{self.point}"

    @property
    def failpoints(self) -> str:
        own = f"{self.name}={self.action}@{self.target.at}"
        return f"{self.target.also}, {own}" if self.target.also else own

    def __str__(self) -> str:
        return f"{self.name}={self.action}"


_LOST_CLAIMS = "claim:after=error"  # all of them: what they took is given back

TARGETS = (
    # What clients do.
    Target("submit_jobs", 2, "client"),
    Target("submit_made", 2, "client"),
    Target("submit", 1, "client"),
    Target("copy", 1, "client"),
    # What workers do.
    Target("register_tasks"),
    Target("register_signatures"),
    Target("register_node"),
    Target("heartbeat", 3),
    Target("deregister_node", provoked="stop"),
    Target("claim", 3),
    Target("mark_started", 2),
    Target("begin_scheduled"),
    Target("finish_succeeded", 3),
    Target("finish_ended"),
    Target("finish_retried", 2),
    Target("give_back", also=_LOST_CLAIMS),
    Target("close_batches"),
    Target("save_progress"),
    Target("begin_effect", 2),
    Target("end_effect"),
    Target("drop_effect"),
    Target("transact", 2),
    Target("sync_transact"),
    # What schedulers do.
    Target("see_shards", 3),
    Target("give_shards", provoked="join"),
    Target("leave_shards", provoked="stop"),
    Target("take_shards", who="scheduler"),
    Target("fire", who="scheduler"),
    Target("release", who="scheduler"),
    Target("promote_waiting", who="scheduler"),
    Target("declare_dead", who="scheduler"),
    Target("reap", who="scheduler"),
)

# Queries that write and never run by themselves: the boundaries are those of these transactions.
INSIDE = {
    "fire": (
        "due_schedules",
        "fire",
        "advance_schedules",
        "note_problems",
        "clear_problems",
    ),
    "reap": ("take_abandoned", "batch_parts", "held_jobs", "close_parts"),
    "copy": ("open_copy", "hint_lanes"),
    "put_schedules": ("lock_schedule", "insert_schedule", "update_schedule", "note_version"),
    "schedule_by_hand": (
        "open_backfill",
        "backfill",
        "lock_lines",
        "mark_deleted",
    ),
    "finish_deletions": ("take_deleted", "skip_unstarted", "delete_schedule"),
    "declare_schedules": ("note_declaration", "adopt", "disown"),
    "bulk": ("ensure_lanes", "add_future", "add_ready"),
    "reencrypt": (
        "renew_fingerprint",
        "specs_of_versions",
        "rewrite_version",
        "encrypted_steps",
        "rewrite_step",
        "encrypted_checkpoints",
        "rewrite_checkpoint",
        "encrypted_maps",
        "encrypted_chunks",
        "rewrite_chunk",
        "encrypted_results",
        "rewrite_results",
        "encrypted_members",
        "rewrite_member",
    ),
    "finish_remote": ("held_for_finish",),
    "give_back_unknown": ("held_of_worker",),
    "leave": ("end_worker",),
    "overrun": ("take_overruns",),
    "advance_run": (
        "take_run",
        "lock_run",
        "lock_open_steps",
        "take_pending",
        "fail_step",
        "lock_child",
        "make_map",
        "start_map",
    ),
    "stop_run": ("stopping_jobs",),
    "transact": ("lock_starter",),
    "trigger": ("advance_trigger", "bury_messages"),
}

# Queries and transactions that write and aren't swept, and why that is enough.
EXCLUDED = {
    "put_workflows": "by hand, one transaction; a repetition changes nothing (test_workflow_files)",
    "put_schedules": "by hand, one transaction; a repetition changes nothing (test_failpoints)",
    "schedule_by_hand": "by hand, one transaction; repetitions are tested in test_failpoints",
    "finish_deletions": "steps of one transaction each; a lost one is repeated (test_schedule_changes)",
    "declare_schedules": "at a start, one transaction; the next start repeats it",
    "advance_run": "one transaction; dying before its commit leaves the pending rows (test_workflows)",
    "cancel_run": "one transaction; a repetition finds the run closed (test_workflows)",
    "stop_run": "one transaction; dying before its commit leaves the note to stop (test_workflows)",
    "open_chunks": "one statement under the token; its repetition is in test_map_faults",
    "record_members": "one statement under the token; its repetition is in test_map_faults",
    "add_chunks": "by a submitter, one statement: the same chunks again add nothing (test_map_streams)",
    "hold_maps": "by hand, in the transaction of its record: the same again",
    "reopen_maps": "by hand, in the transaction of its record: the same again",
    "reopen_members": "by hand, in the transaction of its record: the same again",
    "restart_members": "by hand, in the transaction of its record: the same again",
    "forget_map": "by hand, in the transaction of its record: the same again",
    "lock_workflow": "an advisory lock of a declaration's transaction",
    "add_workflow": "in the transaction of a declaration, which the next start repeats",
    "add_workflow_steps": "in the transaction of a declaration, which the next start repeats",
    "retire_workflow": "by hand, one statement: the same again",
    "pause_run": "by hand, in the transaction of its record: the same again",
    "unpause_run": "by hand, in the transaction of its record: the same again",
    "supply_result": "by hand, in the transaction of its record: the same again",
    "stop_called": "one transaction; dying before its commit leaves the note to stop",
    "record_checkpoints": "one statement under the token; its repetition is in test_durable_faults",
    "forgive_crashes": "in the transaction of a record: both or neither",
    "forgive": "the record of a function that went down before: its repetition is the record's",
    "offer_signals": "after close_waits, which a function repeats until it has noted its end",
    "forget_failure": "by hand, in the transaction of its record: the same again",
    "forget_from": "by hand, in the transaction of its record: the same again",
    "force_cancel": "by hand, in the transaction of its record: the same again",
    "set_run_status": "one statement under the token: the same again",
    "forget_signals": "retention: deletes what is old, and then finds nothing",
    "drop_notes": "after its work is done: lost, that is done again and finds nothing",
    "lock_function": "locks rows for the change of a run, in the transaction of its record",
    "lock_jobs": "locks rows for the change of a run, in the transaction of its record",
    "drop_orphans": "what is left of a run that is gone: deleted at the next look",
    "forget_runs": "retention: deletes what is old, and then finds nothing",
    "change": "one transaction with the record of the change; both or neither (test_audit)",
    "transaction": "has no name: migrations, and what tests do",
    "submit_unique": "as `submit_jobs`: repeated by the job's id (test_unique)",
    "bulk": "the server's copy of `submit`, repeated in the same way",
    "search": "only reads",
    "estimate": "only reads",
    "set_node_wish": "by hand, in the transaction of its record: the same again",
    "fold_tallies": "one statement that takes and adds; its repetition takes others (test_run_stats)",
    "sample_queues": "one statement: the same again changes nothing",
    "forget_run_stats": "retention: deletes what is old, and then finds nothing",
    "claim_shared": "as `claim`: what a lost answer took is found by its batches (test_limits)",
    "claim_bounded": "as `claim`: what a lost answer took is found by its batches (resources)",
    "note_resources": "at the registration of a node, which is repeated whole: the same again",
    "note_used": "what a node shows of itself: the same again, or newer, at the next look",
    "end_reservation": "deletes the node's own row; lost, its next look removes it",
    "add_person": "one statement, of which a repetition finds the person (test_persons)",
    "erase_persons": "by hand, in the transaction of its record: who is erased stays so",
    "forget_outbox": "retention: deletes what is old, and then finds nothing",
    "resort": "one statement under the token: lost, the jobs are given back and sorted again",
    "set_queue_limits": "by hand, in the transaction of its record: the same again",
    "forget_unique_keys": "deletes what counts no more, and then finds nothing",
    "forget_sublanes": "deletes what is unused, and then finds nothing",
    "shared_pause": "only reads",
    "settle_allotments": "a lost answer leaves the node with less than is counted (test_allotments)",
    "take_permit": "asked again by its number: what was granted is granted (test_permits)",
    "leave_permit": "deletes an ask; lost, it ends with its job (test_permits)",
    "forget_permits": "deletes what counts no more, and then finds nothing",
    "explain_permits": "only reads",
    "list_limits": "only reads",
    "set_queue_policy": "by hand, in the transaction of its record: the same again",
    "set_fair_weight": "by hand, in the transaction of its record: the same again",
    "drop_fair_weight": "by hand, in the transaction of its record: the same again",
    "fair_weight": "only reads",
    "list_shares": "only reads",
    "explain_limits": "only reads",
    "cancel_jobs": "by hand, one statement; its repetition is tested in test_failpoints",
    "retry_jobs": "by hand, one statement; its repetition is tested in test_failpoints",
    "discard_jobs": "by hand, one statement; its repetition is tested in test_failpoints",
    "pause_queue": "by hand, one statement; its repetition is tested in test_failpoints",
    "resume_queue": "by hand, one statement; its repetition is tested in test_failpoints",
    "set_paused": "by hand, one statement; its repetition is tested in test_failpoints",
    "set_resumed": "by hand, one statement; its repetition is tested in test_failpoints",
    "put_calendar": "by hand, one statement: the same calendar again",
    "resume_due": "one statement of the database's clock alone: repeated, it finds nothing",
    "enforce_shards": "only with a coordinator other than PostgreSQL: see its own tests",
    "advertise_idle": "a hint: lost, it costs a poll's time",
    "withdraw_idle": "a hint: lost, it costs a poll's time",
    "pass_on": "a hint: lost, it costs a poll's time",
    "echo": "a hint to itself: lost, the listener connects again",
    "lock_listener": "a session's advisory lock: it goes with its connection",
    "add_events": "tells people; each kind once per job",
    "note_missed_deadlines": "tells people; each kind once per job",
    "note_strays": "repairs what never happens; what is noted already isn't again",
    "make_partition": "makes what isn't there",
    "finish_sparing": "finish_succeeded, where a queue keeps less: one statement under the same guard",
    "set_queue_history": "by hand, one statement about one row: repeated, it sets the same",
    "set_history_hours": "by hand, one statement about one row: repeated, it sets the same",
    "forget_traces": "retention: deletes what is old, and then finds nothing",
    "forget_events": "retention: deletes what is old, and then finds nothing",
    **dict.fromkeys(
        ("forget_ended", "forget_dead_letters", "forget_strays"),
        "retention: deletes what is old, and then finds nothing",
    ),
    "forget_old": "retention: deletes what is old, and then finds nothing",
    "forget_occurrences": "retention: deletes what is old, and then finds nothing",
    "forget_shard_moves": "retention: deletes what is old, and then finds nothing",
    "close_backfills": "retention: deletes what is old, and then finds nothing",
    "forget_log_lines": "retention: deletes what is old, and then finds nothing",
    "sweep_identity": "retention: deletes what is old, and then finds nothing",
    "set_encrypted": "by hand, one statement about one row: repeated, it finds what it wanted",
    **dict.fromkeys(
        ("learn_baselines", "accept_slower", "as_usual", "tell_slower", "note_queue_lag"),
        "tells people of slowness; no job depends on it",
    ),
    "note_heartbeat_timeouts": "written again with each registration of its worker",
    "note_alive": "a sign of life: lost, the next one counts",
    "note_release": "tells which release a node is; written again at its next start",
    "set_queue_max_run_time": "by hand, one statement about one row: repeated, it finds what it wanted",
    "note_keys": "tells people which keys a node has; no job depends on it",
    "reencrypt": "by hand, one transaction a batch; a later run finds what is done done",
    "add_log_lines": "a job's own words: a line may be there twice, or be missing",
    "record_change": "the record of a change; judged by its own tests",
    **dict.fromkeys(
        ("add_endpoint", "change_endpoint", "remove_endpoint", "add_webhook", "allow_host",
         "disallow_host", "pause_webhook", "remove_webhook", "put_membership",
         "put_namespace", "put_user", "remove_namespace", "remove_user",
         "revoke_token", "end_session", "end_sessions"),
        "by hand, one statement about one row: repeated, it finds what it wanted",
    ),
    **dict.fromkeys(
        ("create_link", "create_session", "create_token", "use_link", "begin_oidc", "end_oidc",
         "find_user_of_issuer", "add_user_of_issuer", "set_memberships", "count_attempt",
         "forgive_attempt", "forget_failures",
         "mark_tokens_used", "remember_place"),
        "signing in: whoever got no answer signs in again; no job depends on it",
    ),
    **dict.fromkeys(
        ("finish_remote", "leave", "give_back_unknown", "overrun"),
        "workers over HTTP: one transaction under the token; repetitions in test_http_workers",
    ),
    **dict.fromkeys(
        ("register_worker", "register_remote_tasks", "renew_worker", "claim_remote", "next_try",
         "report_progress", "close_finished"),
        "one statement; a worker over HTTP repeats it, as test_http_workers does",
    ),
    "unlock_listener": "a session's advisory lock: it goes with its connection",
    "know_tasks": "what a node says it knows, for people and hints; said again when it changes",
    "take_callback": "one statement under the token; its repetition is tested in test_endpoints",
    "forget_callbacks": "retention: deletes what is old, and then finds nothing",
    **dict.fromkeys(
        ("note_webhook_failure", "note_webhook_success"), "a count of deliveries, for people"
    ),
    "trigger": "one transaction moves the position and stores the jobs (tests/proof/test_triggers)",
    "declare_trigger": "at a start, one statement: the same again changes nothing",
    "read_trigger": "a lease: its holder takes it again, and others when it has run out (test_triggers)",
    "leave_trigger": "gives a lease up early; lost, it runs out (test_triggers)",
    "start_trigger": "one statement that acts once: repeated, it finds the trigger started",
    "note_trigger": "tells people of a lag or a fault; the next look writes it again",
    **dict.fromkeys(
        ("pause_trigger", "lock_trigger", "remove_trigger", "pause_sink", "remove_sink",
         "put_maintenance", "delete_maintenance", "put_pool", "delete_pool",
         "acknowledge_alert", "silence_alert", "restore_alert", "put_saved_view",
         "remove_saved_view", "lock_role", "put_role", "delete_role"),
        "by hand, in the transaction of its record: the same again, or finds nothing left to do",
    ),
    "declare_sink": "at a start, one statement: the same again changes nothing",
    "take_sink": "a lease: its holder takes it again, and others when it has run out (test_sinks)",
    "leave_sink": "gives a lease up early; lost, it runs out (test_sinks)",
    "start_sink": "one statement that acts once: repeated, it finds the sink started",
    "advance_sink": "one statement after the broker answered; lost, events are sent again (test_sinks)",
    "note_sink": "tells people of a fault; the next look writes it again",
    "declare_inbox": "at a start, one statement: the same again changes nothing",
    "store_message": "one statement; delivered again, it finds the message stored (test_http_triggers)",
    "prune_inbox": "retention: deletes what is old, and then finds nothing",
    "rewind_sink": "by hand, in the transaction of its record; a repetition is one more rewind",
    "rewind_trigger": "by hand, in the transaction of its record; a repetition is one more rewind",
    "decide_pool": "one statement, if nobody has decided since; a lost one is decided at the next look",
    "adopt_options": "one statement under the token, before a job is marked as started: the same again",
    **dict.fromkeys(
        ("remember_open", "remember_dead"),
        "locks rows for a bulk action, in the transaction of its record",
    ),
    "add_bulk_change": "by hand, in the transaction of the bulk action that it tells of",
    **dict.fromkeys(
        ("begin_undo", "undo_cancel", "undo_retry", "undo_discard", "end_undo"),
        "by hand, in the transaction of its record; an undo acts once (test_bulk_changes)",
    ),
    "note_coordinator": "tells people which coordinator a scheduler uses; no job depends on it",
    "postpone_recount": "moves a count to later; lost, the count is tried again earlier",
    "report_intake": "tells people; one statement that marks and tells: repeated, it finds nothing",
    "sample_shares": "one statement, for people: the same minute again is overwritten",
}  # fmt: skip


def every_case() -> list[Case]:
    return [
        Case(target, point, action)
        for target in TARGETS
        for point in target.points
        for action in ACTIONS
    ]


# What `make test` has time for: what dies after a commit that nobody heard of, what stops with locks in
# its hands, and every lost answer.
_TELLING = (
    "submit_jobs:after=kill", "submit_made:after=kill",
    "copy:before_commit=kill", "claim:after=kill", "claim:before=stop",
    "mark_started:after=kill", "begin_scheduled:after=stop", "finish_succeeded:after=kill",
    "finish_retried:after=kill", "transact:before_commit=stop", "transact:after_commit=kill",
    "sync_transact:after_commit=kill", "heartbeat:after=stop", "take_shards:after=kill",
    "fire:before_commit=stop", "fire:after_commit=kill", "reap:before_commit=kill",
    "reap:after_commit=stop",
)  # fmt: skip


def telling_cases() -> list[Case]:
    return [
        case
        for case in every_case()
        if str(case) in _TELLING
        or (case.action == "error" and case.point in ("after", "after_commit"))
    ]


async def sweep(
    url: str, folder: Path, cases: Sequence[Case], *, at_a_time: int = 4, chunk: int = 24
) -> list[str]:
    """What was broken; empty when every promise was kept."""
    broken: list[str] = []
    kinds: dict[type[Stage], list[Case]] = {
        Crowd: [case for case in cases if case.target.who != "scheduler"],
        Alone: [case for case in cases if case.target.who == "scheduler"],
    }
    for kind, own in kinds.items():
        for number, part in enumerate(batched_cases(own, chunk)):
            place = folder / f"{kind.__name__.lower()}-{number}"
            place.mkdir()
            began = time.monotonic()
            found = await kind(url, place, at_a_time).run(part)
            broken += [f"{place.name}: {sentence}" for sentence in found]
            print(f"{place.name}: {len(part)} cases, {len(found)} broken promises, "
                  f"{time.monotonic() - began:.0f} s", *found[:20], sep="\n  ", flush=True)  # fmt: skip
    return broken


def batched_cases(cases: Sequence[Case], size: int) -> list[Sequence[Case]]:
    return [cases[start : start + size] for start in range(0, len(cases), size)]


def main() -> None:
    parser = argparse.ArgumentParser(description="A fault at every boundary of a transaction.")
    parser.add_argument("only", nargs="*", help="cases by name, like claim:after=kill or reap")
    parser.add_argument("--telling", action="store_true", help="only what make test runs")
    parser.add_argument("--at-a-time", type=int, default=4)
    parser.add_argument("--keep", action="store_true", help="leave the histories where they are")
    options = parser.parse_args()
    # Asked to end, it leaves no server and no node behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cases = telling_cases() if options.telling else every_case()
    if options.only:
        cases = [case for case in cases if str(case).startswith(tuple(options.only))]
    folder = Path(tempfile.mkdtemp(prefix="rota-sweep-"))
    folder.chmod(0o711)  # root's server runs as another user, who must be able to pass
    server = open_embedded(folder / "db")
    try:
        broken = asyncio.run(sweep(server.url, folder, cases, at_a_time=options.at_a_time))
    finally:
        server.close()
    print(f"{len(cases)} cases, {len(broken)} broken promises")
    print("histories:", folder) if options.keep or broken else shutil.rmtree(folder)
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
