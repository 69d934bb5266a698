"""A dead node's jobs move on, and nothing that it says afterwards counts."""

from __future__ import annotations

import asyncio

import pytest

from proof.waiting import eventually
from rota import Context, LeaseLost
from rota.runtime.attempts import Verdicts
from rota.scheduler.reaper import Reaper
from rota.store.work import LaneClaim, Succeeded, UpkeepStore
from rota.worker.finisher import Finisher
from tests.support.fake_node import LANE, FakeNode


@pytest.fixture
def settings(sandbox):
    return sandbox.app.settings


@pytest.fixture
def reaper(hot, settings):
    return Reaper(UpkeepStore(hot), settings)


@pytest.fixture
async def node(hot, settings):
    return await FakeNode(hot, settings, "doomed").register()


@pytest.fixture
async def other(hot, settings):
    """Lives as long as the test: it is registered after time was moved."""
    return FakeNode(hot, settings, "other")


@pytest.fixture
def submit(sandbox):
    async def submit(**options):
        return (await sandbox.app.submit("greet", {"name": "Ada"}, **options)).id

    return submit


@pytest.fixture
def lose(sandbox, reaper, settings):
    """The node falls silent until its lease is over, and a scheduler notices."""

    async def lose():
        await sandbox.advance(seconds=settings.lease_seconds + 0.001)
        await reaper.tick()

    return lose


def guaranteed(app, guarantee):
    """Tasks carry the guarantee, so a task is needed to submit one."""

    @app.task(guarantee=guarantee)
    async def greet(name: str) -> None: ...


async def test_a_dead_nodes_job_is_ready_again_and_the_loss_is_on_record(
    sandbox, node, submit, lose
):
    job_id = await submit()
    row = await node.claim_one()
    await lose()
    job = await sandbox.app.jobs.get(job_id)
    assert (job.state, job.node, job.attempt, job.crashes) == ("ready", None, 1, 1)
    [entry] = job.attempts
    assert (entry.number, entry.outcome, entry.node) == (1, "lost", str(node.id))
    assert entry.token == row["token"]
    assert entry.ended_at == sandbox.now()


async def test_a_node_is_not_dead_before_its_lease_is_over(sandbox, node, submit, reaper, settings):
    job_id = await submit()
    await node.claim_one()
    await sandbox.advance(seconds=settings.lease_seconds)
    await reaper.tick()
    assert (await sandbox.app.jobs.get(job_id)).state == "running"
    assert await node.heartbeat() is True


async def test_a_heartbeat_keeps_a_node_alive(sandbox, node, submit, reaper, settings):
    job_id = await submit()
    await node.claim_one()
    for _ in range(3):
        await sandbox.advance(seconds=settings.lease_seconds - 1)
        assert await node.heartbeat() is True
        await reaper.tick()
    assert (await sandbox.app.jobs.get(job_id)).state == "running"


async def test_a_node_that_was_declared_dead_stays_dead(sandbox, node, lose):
    await lose()
    assert await node.heartbeat() is False
    [dead] = await sandbox.app.nodes.list(ended=True)
    assert (dead.state, await sandbox.app.nodes.list()) == ("dead", [])


async def test_a_clean_leave_that_forgot_a_job_doesnt_lose_it(sandbox, hot, node, submit, reaper):
    job_id = await submit()
    await node.claim_one()
    await hot.fetch("deregister_node", node.id)
    await reaper.tick()
    assert (await sandbox.app.jobs.get(job_id)).state == "ready"


async def test_tokens_rise_with_every_claim(node, submit):
    tokens = []
    job_id = await submit()
    for _ in range(5):
        row = await node.claim_one()
        tokens.append(row["token"])
        assert await node.give_back(row)
    other_id = await submit()
    rows = await node.claim()
    assert {row["id"] for row in rows} == {job_id, other_id}
    assert len({row["token"] for row in rows}) == 1  # one per batch
    tokens.append(rows[0]["token"])
    assert tokens == sorted(set(tokens))


WRITES = ["finish_succeeded", "finish_failed", "finish_cancelled", "retry_later", "retry_at_once",
          "give_back", "mark_started"]  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_with_the_current_token_is_accepted(sandbox, node, submit, write):
    await submit()
    row = await node.claim_one()
    assert await getattr(node, write)(row) is True


@pytest.mark.parametrize("write", WRITES)
async def test_a_late_write_with_a_stale_token_changes_nothing(
    sandbox, node, other, submit, lose, write
):
    job_id = await submit()
    stale = await node.claim_one()
    await lose()
    await other.register()
    fresh = await other.claim_one()
    before = await sandbox.app.jobs.get(job_id)
    assert fresh["token"] > stale["token"]

    assert await getattr(node, write)(stale) is False

    assert await sandbox.app.jobs.get(job_id) == before
    assert before.node == other.id
    # Not even under the new token, by a node that isn't its holder (a token that was issued twice).
    assert await getattr(node, write)(fresh) is False
    # And not by the holder under the old one.
    assert await getattr(other, write)(stale) is False
    assert await sandbox.app.jobs.get(job_id) == before
    assert await other.finish_succeeded(fresh) is True


@pytest.mark.parametrize("write", WRITES)
async def test_a_late_write_about_a_job_that_waits_again_changes_nothing(
    sandbox, node, submit, lose, write
):
    job_id = await submit()
    stale = await node.claim_one()
    await lose()
    before = await sandbox.app.jobs.get(job_id)
    assert await getattr(node, write)(stale) is False
    assert await sandbox.app.jobs.get(job_id) == before
    assert before.state == "ready"


async def test_late_progress_is_not_kept(sandbox, node, other, submit, lose):
    job_id = await submit()
    stale = await node.claim_one()
    await node.save_progress(stale, 1)
    assert (await sandbox.app.jobs.get(job_id)).progress == {"done": 1}
    await lose()
    await other.register()
    fresh = await other.claim_one()
    await other.save_progress(fresh, 2)
    await node.save_progress(stale, 3)
    await node.save_progress(fresh, 4)
    await other.save_progress(stale, 5)
    assert (await sandbox.app.jobs.get(job_id)).progress == {"done": 2}


async def test_a_late_once_doesnt_run_its_effect(node, other, submit, lose):
    await submit()
    stale = await node.claim_one()
    await lose()
    await other.register()
    fresh = await other.claim_one()
    ran = []
    with pytest.raises(LeaseLost, match="not run"):
        await node.once(stale, "charge", lambda: ran.append("stale"))
    await other.once(fresh, "charge", lambda: ran.append("fresh"))
    assert ran == ["fresh"]


async def test_an_exactly_once_handler_that_lost_its_lease_leaves_nothing(sandbox, reaper):
    app = sandbox.app
    schema = app.settings.schema
    seen = []

    @app.task(guarantee="exactly_once")
    async def refund(order: int, ctx: Context) -> None:
        await ctx.connection.execute(f"insert into {schema}.refunds values ($1)", ctx.attempt)
        seen.append((ctx.attempt, ctx.token))
        if ctx.attempt == 1:
            await reaper.tick()  # whoever runs it here is no registered node: taken for dead

    store = await app.store()
    async with store.database.connection() as connection:
        await connection.execute(f"create table {schema}.refunds (attempt int)")
        handle = await refund.submit(7)
        [job] = await sandbox.run_due()
        rows = await connection.fetch(f"select attempt from {schema}.refunds")
    assert (job.id, job.state) == (handle.id, "succeeded")
    assert [attempt for attempt, _ in seen] == [1, 2]
    assert seen[1][1] > seen[0][1]
    assert [row["attempt"] for row in rows] == [2]
    assert [entry.outcome for entry in job.attempts] == ["lost"]


# -- what becomes of the job depends on its guarantee


async def test_at_most_once_that_never_began_is_given_back(sandbox, node, submit, lose):
    guaranteed(sandbox.app, "at_most_once")
    job_id = await submit()
    await node.claim_one()
    await lose()
    job = await sandbox.app.jobs.get(job_id)
    assert (job.state, job.attempt, job.crashes, job.attempts) == ("ready", 0, 0, [])


async def test_at_most_once_that_had_begun_is_never_run_again(sandbox, node, submit, lose):
    guaranteed(sandbox.app, "at_most_once")
    job_id = await submit()
    assert await node.mark_started(await node.claim_one())
    await lose()
    job = await sandbox.app.jobs.get(job_id)
    assert (job.state, job.error.type) == ("failed", "NodeLost")
    assert [entry.outcome for entry in job.attempts] == ["lost"]
    assert await sandbox.run_due() == []


async def test_exactly_once_is_run_again(sandbox, node, submit, lose):
    guaranteed(sandbox.app, "exactly_once")
    job_id = await submit()
    await node.claim_one()
    await lose()
    assert (await sandbox.app.jobs.get(job_id)).state == "ready"
    [job] = await sandbox.run_due()
    assert (job.state, job.attempt) == ("succeeded", 2)


async def test_a_lost_job_that_was_cancelled_ends_cancelled(sandbox, node, submit, lose):
    job_id = await submit()
    await node.claim_one()
    assert (await sandbox.app.jobs.cancel(job_id)).outcome == "stopping"
    await lose()
    assert (await sandbox.app.jobs.get(job_id)).state == "cancelled"


async def test_a_loss_uses_up_no_attempt_but_three_of_them_quarantine_the_job(
    sandbox, hot, settings, submit, lose
):
    job_id = await submit(max_attempts=1)
    for crashes in (1, 2, 3):
        node = await FakeNode(hot, settings).register()
        row = await node.claim_one()
        # From the second time on it is only blamed if it really ran.
        assert await node.mark_started(row)
        await lose()
        job = await sandbox.app.jobs.get(job_id)
        assert job.crashes == crashes
        assert job.state == ("failed" if crashes == 3 else "ready")
    assert job.error.type == "Quarantined"
    assert [entry.outcome for entry in job.attempts] == ["lost"] * 3


async def test_a_suspect_that_was_only_held_is_not_blamed_again(
    sandbox, hot, settings, submit, lose
):
    job_id = await submit()
    for _ in range(4):
        node = await FakeNode(hot, settings).register()
        await node.claim_one()
        await lose()
    job = await sandbox.app.jobs.get(job_id)
    assert (job.state, job.crashes) == ("ready", 1)


async def test_a_whole_batch_comes_back_except_what_had_finished(sandbox, node, submit, lose, hot):
    ids = [await submit(priority=n % 3) for n in range(30)]
    rows = await node.claim()
    assert len(rows) == 30
    done = rows[5:15]
    for row in done:
        assert await node.finish_succeeded(row)
    await lose()
    count = await sandbox.app.jobs.count()
    assert count == {"ready": 20, "succeeded": 10}
    assert {job.id for job in await sandbox.jobs(state="ready")} == set(ids) - {
        row["id"] for row in done
    }
    async with hot.connection() as connection:
        left = await connection.fetchval(f"select count(*) from {hot.schema}.batch")
    assert left == 0


async def test_two_reapers_return_a_job_once(sandbox, node, submit, hot, settings):
    job_id = await submit()
    await node.claim_one()
    await sandbox.advance(seconds=settings.lease_seconds + 1)
    reapers = [Reaper(UpkeepStore(hot), settings) for _ in range(4)]
    await asyncio.gather(*(reaper.tick() for reaper in reapers))
    job = await sandbox.app.jobs.get(job_id)
    assert (job.state, job.crashes, len(job.attempts)) == ("ready", 1, 1)


async def test_another_nodes_jobs_between_a_dead_nodes_stay_with_it(
    sandbox, node, other, submit, reaper, settings
):
    ids = [await submit() for _ in range(5)]
    await other.register()
    first = await node.claim(LaneClaim(LANE, 2))
    between = await other.claim(LaneClaim(LANE, 2))
    assert await node.give_back(first[1])
    [again, last] = await node.claim()
    assert [row["id"] for row in (first[0], again, *between, last)] == ids
    await sandbox.advance(seconds=settings.lease_seconds)
    assert await other.heartbeat()
    await sandbox.advance(seconds=1)
    await reaper.tick()
    states = [(await sandbox.app.jobs.get(job_id)).state for job_id in ids]
    assert states == ["ready", "ready", "running", "running", "ready"]
    for row in between:
        assert await other.finish_succeeded(row)


async def test_an_outcome_that_cannot_be_written_takes_no_other_with_it(node, submit, sandbox):
    ids = [await submit() for _ in range(3)]
    rows = await node.claim()
    finisher = Finisher(node.store, Verdicts(node.id, max_crashes=3), node.lease.clock, None)
    results = ['"fine"', "no JSON at all", '"fine"']
    finisher.verdicts.succeeded.extend(
        Succeeded(row["id"], row["token"], 0.0, 0.0, result)
        for row, result in zip(rows, results, strict=True)
    )
    await finisher.flush()
    jobs = {job.id: job for job in await sandbox.jobs()}
    assert {jobs[id].state for id in ids} == {"succeeded"}
    assert sorted(jobs[id].error.type for id in ids if jobs[id].error) == ["ResultDropped"]
    assert finisher.pending == 0


# -- a cancel that comes while a job is on its way back


@pytest.mark.parametrize("write", ["give_back", "retry_at_once", "retry_later"])
async def test_a_cancel_that_commits_during_a_write_is_not_lost(sandbox, hot, node, submit, write):
    job_id = await submit()
    row = await node.claim_one()
    async with hot.transaction() as cancelling:
        await cancelling.fetch(hot.queries["cancel_jobs"], "default", [job_id])
        writing = asyncio.create_task(getattr(node, write)(row))

        async def waits_for_the_cancel() -> bool:
            return await cancelling.fetchval(
                "select exists (select from pg_locks where not granted"
                " and pg_backend_pid() = any(pg_blocking_pids(pid)))"
            )

        await eventually(waits_for_the_cancel)
    assert await writing is True
    assert (await sandbox.app.jobs.get(job_id)).state == "cancelled"


# -- a row that can't be written


@pytest.fixture
async def refuse(hot):
    """Makes the database refuse one job's row in a table, as a DBA's constraint would."""
    undo = []

    async def refuse(table: str, job_id, state: str = "23514") -> None:
        async with hot.connection() as connection:
            await connection.execute(f"""
                create function {hot.schema}.refuse_{table}() returns trigger language plpgsql as $$
                begin
                    if new.id = '{job_id}' then
                        raise exception using errcode = '{state}', message = 'as if';
                    end if;
                    return new;
                end $$;
                create trigger refuse before insert or update on {hot.schema}.{table}
                    for each row execute function {hot.schema}.refuse_{table}()""")
        undo.append(f"drop function {hot.schema}.refuse_{table} cascade")

    yield refuse
    async with hot.connection() as connection:
        for statement in undo:
            await connection.execute(statement)


async def test_a_row_that_can_t_be_written_doesn_t_stop_the_reaper(
    sandbox, node, submit, lose, refuse
):
    ids = [await submit() for _ in range(7)]
    await node.claim(LaneClaim(LANE, 4))
    await node.claim(LaneClaim(LANE, 3))
    await refuse("present", ids[2])
    await lose()
    jobs = {job.id: job for job in await sandbox.jobs()}
    assert [jobs[id].state for id in ids if id != ids[2]] == ["ready"] * 6
    assert (jobs[ids[2]].state, jobs[ids[2]].error.type) == ("failed", "OutcomeNotStored")


async def test_a_batch_that_can_t_be_written_at_all_stops_no_other(
    sandbox, node, submit, lose, refuse, reaper
):
    ids = [await submit() for _ in range(4)]
    await node.claim(LaneClaim(LANE, 2))
    await node.claim(LaneClaim(LANE, 2))
    await refuse("present", ids[0], "XX001")  # a broken page
    await lose()
    states = [(await sandbox.app.jobs.get(id)).state for id in ids]
    assert states == ["running", "running", "ready", "ready"]


async def test_a_job_whose_id_is_on_the_dead_letter_list_already_ends_all_the_same(
    sandbox, node, submit, hot
):
    job_id = await submit()
    row = await node.claim_one()
    async with hot.connection() as connection:
        await connection.execute(
            f"insert into {hot.schema}.dead (id, due_at, created_at, finished_at, state, priority,"
            " guarantee, attempt, max_attempts, crashes, namespace, lane, task, payload)"
            f" select id, due_at, created_at, due_at, 6, 0, 1, 1, 1, 0, namespace, lane, task, payload"
            f" from {hot.schema}.present where id = $1", job_id
        )  # fmt: skip
    assert await node.finish_failed(row, "Newer")
    [job] = await sandbox.jobs()
    assert (job.state, job.error.type) == ("failed", "Newer")
