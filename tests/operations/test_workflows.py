"""Graphs of steps: rules, conditions, results, and what operators do to their runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import asyncpg
import psycopg
import pytest

from proof.waiting import eventually
from rota import App
from rota.core.workflow.expressions import Condition
from rota.errors import ConfigError, Conflict, InvalidArguments, KeyConflict, NotFound
from rota.testing import Sandbox
from tests.support.sandboxes import isolated
from tests.support.shop import Shop, ended, states


async def test_results_are_passed_on_and_the_last_is_the_runs(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("orders")
    rows = flow.step(shop.count)
    flow.step(shop.double, rows["count"])
    run = await flow.start(day="2026-11-15", by=21)
    await sandbox.run_due()
    assert await run.result(1) == 42
    assert shop.ran == ["count 2026-11-15", "double 21"]


async def test_several_last_steps_give_their_results_by_name(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("two")
    for name in ("a", "b"):
        shop.add(flow, name)
    run = await flow.start()
    await sandbox.run_due()
    assert await run.result(1) == {"a": "a", "b": "b"}


RULES = {
    # rule: states of the step after two predecessors that (both succeed, one fails, both fail)
    "all_succeeded": ("succeeded", "upstream_failed", "upstream_failed"),
    "all_ended": ("succeeded", "succeeded", "succeeded"),
    "always": ("succeeded", "succeeded", "succeeded"),
    "one_succeeded": ("succeeded", "succeeded", "upstream_failed"),
    "one_failed": ("skipped", "succeeded", "succeeded"),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("broken", [0, 1, 2])
async def test_rules(sandbox: Sandbox, shop: Shop, rule: str, broken: int) -> None:
    flow = sandbox.app.workflow("rules")
    before = [shop.add(flow, name) for name in ("a", "b")]
    shop.add(flow, "c", after=before, rule=rule)
    shop.broken = {"a", "b"} if broken == 2 else {"a"} if broken else set()
    run = await flow.start()
    status = await ended(sandbox, run)
    assert (await states(run))["c"] == RULES[rule][broken]
    assert status.state == ("failed" if broken else "succeeded")
    assert shop.ran.count("c") == (RULES[rule][broken] == "succeeded")


async def test_a_share_of_the_steps_before_may_fail(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("share")
    before = [shop.add(flow, f"p{number}") for number in range(4)]
    shop.add(flow, "half", after=before, tolerate=0.5)
    shop.add(flow, "one", after=before, tolerate=1)
    shop.broken = {"p0", "p1"}
    run = await flow.start()
    await sandbox.run_due()
    found = await states(run)
    assert (found["half"], found["one"]) == ("succeeded", "upstream_failed")


async def test_an_optional_step_may_fail(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("optional")
    shop.add(flow, "b", after=shop.add(flow, "a", optional=True))
    shop.broken = {"a"}
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert await states(run) == {"a": "failed", "b": "succeeded"}


@pytest.mark.parametrize(("by", "state"), [(3, "succeeded"), (0, "skipped")])
async def test_conditions(sandbox: Sandbox, shop: Shop, by: int, state: str) -> None:
    flow = sandbox.app.workflow("conditions")
    flow.step(shop.count)
    shop.add(flow, "b", when="count.count > 0 and input.day in ['x', 'y']")
    shop.add(flow, "c", after="b")
    run = await flow.start(day="x", by=by)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert (await states(run))["b"] == (await states(run))["c"] == state


async def test_a_condition_that_cannot_be_judged_fails_its_step(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("unjudged")
    flow.step(shop.count)
    shop.add(flow, "b", when="count.day > 3")
    run = await flow.start(day="x")
    assert (await ended(sandbox, run)).state == "failed"
    step = await sandbox.app.runs.step(run.id, "b")
    assert step.state == "failed"
    assert "can't be judged" in step.error["message"]


async def test_a_long_chain_of_skips_ends_the_run(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("skips")
    before = shop.add(flow, "s0")
    for number in range(1, 300):
        before = shop.add(flow, f"s{number}", after=before)
    shop.broken = {"s0"}
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "failed"
    assert set((await states(run)).values()) == {"failed", "upstream_failed"}


# -- resume, retry, skip


async def test_resume_repeats_what_failed_and_what_follows(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("resume")
    a, b = shop.add(flow, "a"), shop.add(flow, "b")
    c = shop.add(flow, "c", after=[a, b])
    shop.add(flow, "cleanup", after=c, rule="always")
    shop.broken = {"b"}
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "failed"
    shop.broken, shop.ran = set(), []
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["b", "c", "cleanup"]
    assert (await run.status()).round == 2


async def test_resume_of_a_run_that_succeeded_is_refused(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("fine")
    shop.add(flow, "a")
    run = await flow.start()
    await sandbox.run_due()
    with pytest.raises(Conflict, match="it is succeeded"):
        await run.resume()


async def test_retry_of_one_step_repeats_what_comes_after_it(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("retry")
    b = shop.add(flow, "b", after=shop.add(flow, "a"))
    shop.add(flow, "c", after=b)
    run = await flow.start()
    await sandbox.run_due()
    shop.ran = []
    assert (await run.retry("b")).steps == 3  # with the hidden end
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["b", "c"]
    with pytest.raises(NotFound, match="no step 'x'"):
        await run.retry("x")


async def test_a_skipped_step_counts_as_succeeded(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("skip")
    a = shop.add(flow, "a")
    flow.step(shop.double, a["number"])
    shop.broken = {"a"}
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "failed"
    await run.skip("a", result={"number": 21})
    assert (await ended(sandbox, run)).state == "succeeded"
    assert await run.result(1) == 42
    step = await sandbox.app.runs.step(run.id, "a")
    assert (step.note or "").startswith("skipped by ")


async def test_the_job_of_a_failed_step_is_not_retried_alone(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("alone")
    shop.add(flow, "a")
    shop.broken = {"a"}
    run = await flow.start()
    await sandbox.run_due()
    job = (await run.steps())[0].job_id
    assert job is not None
    with pytest.raises(Conflict, match="is a step of run"):
        await sandbox.app.jobs.retry(job)
    assert await sandbox.app.jobs.retry_many([job]) == []


# -- cancel, pause, deadline


async def test_cancel_closes_what_waits_and_runs_what_always_runs(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("cancel")
    b = shop.add(flow, "b", after=shop.add(flow, "a"))
    shop.add(flow, "cleanup", after=b, rule="always")
    shop.add(flow, "ended", after=b, rule="all_ended")
    run = await flow.start()
    await run.cancel()
    status = await ended(sandbox, run)
    assert status.state == "cancelled"
    assert shop.ran == ["cleanup"]
    assert await states(run) == {
        "a": "cancelled", "b": "cancelled", "ended": "cancelled", "cleanup": "succeeded"
    }  # fmt: skip
    with pytest.raises(Conflict, match="has already cancelled"):
        await run.cancel()
    shop.ran = []
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(shop.ran) == ["a", "b", "cleanup", "ended"]


async def test_a_late_finish_advances_nothing(sandbox: Sandbox, shop: Shop) -> None:
    """The job of a step that was closed meanwhile ends, and its successors stay closed."""
    app = sandbox.app
    flow = app.workflow("late")

    @app.task
    async def cancel_its_run() -> None:
        await run.cancel()
        shop.ran.append("first")

    first = flow.step(cancel_its_run)
    shop.add(flow, "second", after=first)
    run = await flow.start()
    status = await ended(sandbox, run)
    assert status.state == "cancelled"
    assert shop.ran == ["first"]
    assert (await states(run))["second"] == "cancelled"


async def test_a_paused_run_starts_nothing(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("pause")
    a = shop.add(flow, "a")
    shop.add(flow, "b", after=a)
    shop.add(flow, "c", when="a == 'a'")
    run = await flow.start()
    await run.pause()
    await sandbox.run_due()
    assert shop.ran == ["a"]
    assert (await run.status()).paused_at is not None
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(shop.ran) == ["a", "b", "c"]


async def test_a_deadline_fails_the_run(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("deadline", deadline="1h")
    shop.add(flow, "cleanup", after=shop.add(flow, "a"), rule="always")
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    await sandbox.advance(hours=1)
    await sandbox.run_due()
    await sandbox.app.queues.resume("default")
    status = await ended(sandbox, run)
    assert status.state == "failed"
    assert status.error["type"] == "DeadlineExceeded"
    assert shop.ran == ["cleanup"]


async def test_each_resume_has_the_whole_deadline(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("again", deadline="1h")
    shop.add(flow, "a")
    shop.broken = {"a"}
    run = await flow.start()
    for _ in range(3):
        assert (await ended(sandbox, run)).state == "failed"
        await sandbox.advance(hours=2)
        await run.resume()
        left = (await run.status()).deadline_at
        assert left is not None
        assert (left - sandbox.now()).total_seconds() == 3600


async def test_a_run_that_is_being_cancelled_is_not_revived(sandbox: Sandbox, shop: Shop) -> None:
    app = sandbox.app
    flow = app.workflow("stopping")

    @app.task
    async def meddle() -> list[str]:
        await run.cancel()
        said = []
        for act in (run.retry("other"), run.skip("other"), run.resume(), run.pause()):
            try:
                await act
            except Conflict as error:
                said.append(error.code)
        return said

    shop.add(flow, "other", after=flow.step(meddle))
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "cancelled"
    said = (await app.runs.step(run.id, "meddle")).result
    assert said == ["cancelling", "cancelling", "not-resumable", "cancelling"]
    assert shop.ran == []


async def test_a_step_that_is_retried_waits_while_its_run_is_paused(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("held")
    a = shop.add(flow, "a")
    shop.add(flow, "b", after=a)
    run = await flow.start()
    await run.pause()
    await sandbox.run_due()
    await run.retry("a")
    await sandbox.run_due()
    assert shop.ran == ["a"]
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["a", "a", "b"]


# -- sub-workflows


async def test_a_workflow_as_a_step(sandbox: Sandbox, shop: Shop) -> None:
    inner = sandbox.app.workflow("inner")
    inner.step(shop.double)
    outer = sandbox.app.workflow("outer")
    one = outer.step(inner, number=5)
    outer.step(shop.double, one, name="again")
    run = await outer.start()
    await sandbox.run_due()
    assert await run.result(1) == 20


async def test_a_sub_workflow_that_failed_is_resumed_with_its_parent(
    sandbox: Sandbox, shop: Shop
) -> None:
    inner = sandbox.app.workflow("inner")
    shop.add(inner, "y", after=shop.add(inner, "x"))
    outer = sandbox.app.workflow("outer")
    shop.add(outer, "z", after=outer.step(inner))
    shop.broken = {"y"}
    run = await outer.start()
    assert (await ended(sandbox, run)).state == "failed"
    shop.broken, shop.ran = set(), []
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["y", "z"]


async def test_cancel_reaches_sub_workflows(sandbox: Sandbox, shop: Shop) -> None:
    inner = sandbox.app.workflow("inner")
    shop.add(inner, "x")
    outer = sandbox.app.workflow("outer")
    outer.step(inner)
    run = await outer.start()
    await sandbox.app.queues.pause("default")
    await sandbox.run_due()
    await run.cancel()
    assert (await ended(sandbox, run)).state == "cancelled"
    assert {each.state for each in await sandbox.app.runs.list()} == {"cancelled"}
    assert shop.ran == []


# -- starting


async def test_a_key_names_one_run(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("keyed")
    flow.step(shop.count)
    first = await flow.options(key="order-1").start(day="x")
    again = await flow.options(key="order-1").start(day="x")
    assert (again.id, again.existed) == (first.id, True)
    with pytest.raises(KeyConflict):
        await flow.options(key="order-1").start(day="y")
    await sandbox.run_due()
    assert shop.ran == ["count x"]


async def test_a_share_that_may_fail_is_a_number_or_a_percentage(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("shares")
    before = [shop.add(flow, name) for name in "abcd"]
    shop.add(flow, "e", after=before, tolerate="25%")
    for wrong in ("150%", "some"):
        with pytest.raises(
            ConfigError, match="workflow 'shares', step 'f': tolerate is a number or"
        ):
            shop.add(flow, "f", after=before, tolerate=wrong)
    shop.broken = {"c"}
    run = await flow.start()
    await ended(sandbox, run)
    assert (await states(run))["e"] == "succeeded"


async def test_a_run_is_started_by_the_callers_transaction(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("mine")
    shop.add(flow, "a")
    await sandbox.app.workflows.put(flow.graph)
    connection = await asyncpg.connect(await sandbox.app.database_url())
    try:
        for commit in (False, True):
            transaction = connection.transaction()
            await transaction.start()
            run = await flow.options(connection=connection).start()
            await (transaction.commit() if commit else transaction.rollback())
            await sandbox.run_due()
            if not commit:
                with pytest.raises(NotFound):
                    await run.status()
    finally:
        await connection.close()
    assert (await run.status()).state == "succeeded"
    assert shop.ran == ["a"]


def test_a_run_is_started_by_a_synchronous_transaction(app: App) -> None:
    flow = app.workflow("sync")
    Shop(app).add(flow, "a")
    asyncio.run(_migrated(app))
    with psycopg.connect(app.settings.database_url or "") as connection:
        run = flow.options(connection=connection).start_sync()
        connection.rollback()
        kept = flow.options(connection=connection).start_sync()
    with pytest.raises(NotFound):
        run.status_sync()
    assert kept.status_sync().state == "running"


async def _migrated(app: App) -> None:
    await app.store()
    await app.close()


async def test_an_app_is_opened_on_one_database_after_another(database_url: str) -> None:
    app = App(database_url=database_url)
    shop = Shop(app)
    flow = app.workflow("twice")
    shop.add(flow, "a")
    for _ in range(2):
        async with isolated(app) as sandbox:
            run = await flow.start()
            assert (await ended(sandbox, run)).state == "succeeded"


async def test_runs_stay_with_their_version(sandbox: Sandbox, make_app: Callable[..., App]) -> None:
    app = sandbox.app
    shop = Shop(app)
    old = app.workflow("versions")
    shop.add(old, "b", after=shop.add(old, "a"))
    run = await old.start()
    del app.workflows.declared["versions"]
    new = app.workflow("versions")
    shop.add(new, "c")
    newer = await new.start()
    await sandbox.run_due()
    assert list(await states(run)) == ["a", "b"]
    assert list(await states(newer)) == ["c"]
    assert [(await each.status()).version for each in (run, newer)] == [1, 2]
    assert (await (await old.start()).status()).version == 1  # a node of the old release


async def test_input_is_checked(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("checked")
    flow.step(shop.count)
    with pytest.raises(InvalidArguments, match="its input lacks 'day'"):
        await flow.start()
    with pytest.raises(InvalidArguments, match="no step reads 'dya'"):
        await flow.start(day="x", dya="y")


# -- traps


async def test_a_result_that_is_too_large_fails_its_step(sandbox: Sandbox) -> None:
    app = sandbox.app

    @app.task
    async def large() -> str:
        return "x" * (app.settings.max_result_bytes + 1)

    @app.task
    async def reads(text: str) -> None: ...

    flow = app.workflow("large")
    flow.step(reads, flow.step(large))
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "failed"
    step = await app.runs.step(run.id, "large")
    assert step.state == "failed"
    assert "over max_result_bytes" in step.error["message"]
    [job] = await app.jobs.list(task="large")
    assert job.attempt == 1  # the effect has happened


async def test_a_path_that_leads_nowhere_fails_the_step_that_takes_it(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("nowhere")
    rows = flow.step(shop.count)
    flow.step(shop.double, rows["rows"])
    run = await flow.start(day="x")
    assert (await ended(sandbox, run)).state == "failed"
    step = await sandbox.app.runs.step(run.id, "double")
    assert "there is no 'rows' in an object with 'count', 'day'" in step.error["message"]


# -- declarations that are refused


def test_bad_declarations_are_refused(app: App) -> None:
    shop = Shop(app)
    flow = app.workflow("bad")
    a = shop.add(flow, "a")
    with pytest.raises(ConfigError, match="two steps are named 'a'"):
        shop.add(flow, "a")
    with pytest.raises(ConfigError, match="argument 'number' is a int, but step 'a' returns a str"):
        flow.step(shop.double, a)
    with pytest.raises(InvalidArguments, match="unexpected keyword argument 'nubmer'"):
        flow.step(shop.double, nubmer=3)
    with pytest.raises(ConfigError, match="has no result while the workflow is declared"):
        assert a
    shop.add(flow, "b", when="a >")
    said = "workflow 'bad', step 'b': the condition 'a >', column 4: it ends where something should"
    with pytest.raises(ConfigError, match=said):
        assert flow.graph
    with pytest.raises(ConfigError, match="two workflows are named 'bad'"):
        app.workflow("bad")


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("a.count = 3", "column 9: write '==' instead of '='"),
        ("a.count > 1 && a", "column 14: write 'and' instead of '&&'"),
        ("a.count > 1\nor ) b", "column 16: unmatched"),
        ("a.count > and 3", "column 11: 'and' can't stand here"),
        ("a or", "column 5: it ends where something should follow"),
    ],
)
def test_a_condition_that_does_not_parse_is_refused_with_its_place(
    condition: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        Condition(condition)


def test_a_wrong_rule_is_refused_with_its_step(app: App) -> None:
    flow = app.workflow("wrong")
    Shop(app).add(flow, "a", rule="all_suceeded")
    with pytest.raises(
        ConfigError, match="workflow 'wrong', step 'a': rule 'all_suceeded' is not one"
    ):
        assert flow.graph


async def test_a_graph_takes_no_signals(sandbox: Sandbox) -> None:
    shop = Shop(sandbox.app)
    flow = sandbox.app.workflow("deaf")
    shop.add(flow, "a")
    run = await flow.start()
    with pytest.raises(Conflict, match="is of the graph 'deaf', which takes no signals"):
        await run.send("go")


def test_a_rule_that_can_never_be_met_is_refused(app: App) -> None:
    flow = app.workflow("never")
    Shop(app).add(flow, "a", rule="one_failed")
    with pytest.raises(ConfigError, match="the rule one_failed can never be met"):
        assert flow.graph


# -- races


async def test_a_step_that_two_start_at_once_has_one_job(sandbox: Sandbox, shop: Shop) -> None:
    app = sandbox.app
    flow = app.workflow("race")
    shop.add(flow, "b", after=shop.add(flow, "a"))
    run = await flow.start()
    start = f"select {app.settings.schema}.start_steps(array[$1::uuid], array[1])"
    url = await app.database_url()
    one, two = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        transaction = one.transaction()
        await transaction.start()
        await one.execute(start, run.id)
        second = asyncio.create_task(two.execute(start, run.id))
        backend = two.get_server_pid()

        async def waits() -> bool:
            asked = "select cardinality(pg_blocking_pids($1)) > 0"
            return bool(await one.fetchval(asked, backend))

        await eventually(waits)
        await transaction.commit()
        await second
    finally:
        await one.close()
        await two.close()
    jobs = [job for job in await app.jobs.list() if job.step == 1]
    assert len(jobs) == 1
    assert jobs[0].id == (await app.runs.step(run.id, "b")).job_id


async def test_all_steps_of_a_wide_run_are_listed(sandbox: Sandbox) -> None:
    @sandbox.app.task
    async def one() -> None: ...

    flow = sandbox.app.workflow("wide")
    for number in range(1_001):
        flow.step(one, name=f"step-{number}")
    run = await flow.start()
    assert [step.name for step in await run.steps()] == [f"step-{n}" for n in range(1_001)]
