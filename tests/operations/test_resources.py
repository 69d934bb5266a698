"""Resources and nearness by every way in: what is stored, what is said of it, and what is refused."""

from __future__ import annotations

import pytest

from rota import App, Node
from rota.core.resources import said_public, shape_of_lane
from rota.core.time.schedule import make_spec
from rota.errors import ConfigError, InvalidArguments, SubmitError
from rota.model import Job

GIB = 1 << 30


@pytest.fixture
def app(make_app) -> App:
    app = make_app()

    @app.task(needs=["cuda"], resources={"memory": "2GB", "cpu": 0.5, "gpu": 1}, near="model7")
    async def train(step: int = 0) -> None: ...

    @app.task
    async def light() -> None: ...

    return app


async def lane(app: App, id) -> str:
    store = await app.rota.store()
    rows = await store.database.fetch("get_jobs", "default", [id])
    text: str = rows[0]["lane"]
    return text


def asked(job: Job) -> tuple[object, ...]:
    return job.needs, job.resources, job.near


async def test_what_a_task_declares_is_part_of_the_lane(app):
    job = await app.tasks["train"].submit()
    assert await lane(app, job.id) == "default/default+cpu=0.5+cuda+gpu=1+memory=2048+~model7=5"
    assert asked(await app.jobs.get(job.id)) == (
        ("cuda",), {"cpu": 0.5, "gpu": 1, "memory": 2 * GIB}, "model7",
    )  # fmt: skip
    assert await lane(app, (await app.tasks["light"].submit()).id) == "default/default"


async def test_a_submit_changes_what_it_names_and_leaves_the_rest(app):
    train = app.tasks["train"]
    gpus = await train.options(resources={"gpu": 4}).submit()
    assert asked(await app.jobs.get(gpus.id)) == (("cuda",), {"gpu": 4}, "model7")
    needs = await train.options(needs=[]).submit()
    found = await app.jobs.get(needs.id)
    assert (found.needs, found.near, found.resources["gpu"]) == ((), "model7", 1)
    anywhere = await train.options(near="", resources={}).submit()
    assert asked(await app.jobs.get(anywhere.id)) == (("cuda",), {}, None)
    later = await train.options(near="model8", near_patience=60).submit()
    assert shape_of_lane(await lane(app, later.id)).near_seconds == 60


async def register(app: App) -> Node:
    node = Node(app, ["worker"], queues=["nothing"], resources={"gpu": 2}, labels=["model7"])
    await node.start()
    return node


async def test_the_database_fills_in_what_a_task_declares_elsewhere(app, make_app):
    node = await register(app)
    try:
        client = make_app()
        whole = await client.submit("train", {"step": 1})
        part = await client.submit("train", {"step": 1}, resources={"gpu": 2})
        both = await client.submit("train", {"step": 1}, needs=["rocm"], near="")
        many = await app.tasks["train"].submit_many([(n,) for n in range(300)])
        assert asked(await client.jobs.get(whole.id)) == (
            ("cuda",), {"cpu": 0.5, "gpu": 1, "memory": 2 * GIB}, "model7",
        )  # fmt: skip
        assert asked(await client.jobs.get(part.id)) == (("cuda",), {"gpu": 2}, "model7")
        assert asked(await client.jobs.get(both.id)) == (
            ("rocm",), {"cpu": 0.5, "gpu": 1, "memory": 2 * GIB}, None,
        )  # fmt: skip
        assert (await client.jobs.get(many[-1].id)).resources["memory"] == 2 * GIB
    finally:
        await node.stop()


async def test_plain_sql_says_the_same(app):
    node = await register(app)
    try:
        database = (await app.rota.store()).database
        schema = app.settings.schema
        async with database.transaction() as connection:
            id = await connection.fetchval(
                f"select {schema}.submit('train', '{{\"step\": 1}}', "
                'resources => \'{"memory": "1.1GB", "gpu": 2}\', near => \'model9\', '
                "near_patience => '10 s')"
            )
        assert await lane(app, id) == "default/default+cuda+gpu=2+memory=1536+~model9=10"
        with pytest.raises(Exception, match="resources: memory must be above 0"):
            async with database.transaction() as connection:
                await connection.fetchval(
                    f"select {schema}.submit('train', '{{}}', resources => '{{\"memory\": \"big\"}}')"
                )
    finally:
        await node.stop()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("resources => '[1]'", "resources must be an object"),
        ("resources => 'null'", "resources must be an object"),
        ("""resources => '{"memory": 1e30}'""", "memory must be at most 1024TB"),
        ("""resources => '{"memory": "99999999TB"}'""", "memory must be at most 1024TB"),
        ("""resources => '{"gpu": 1e7}'""", "gpu must be at most 1000000"),
        ("""resources => '{"a+b": 1}'""", "'a\\+b' is not a usable name"),
        ("""resources => '{"Memory": "1GB"}'""", "'Memory' is not a usable name"),
        ("resources => (select jsonb_object_agg('r' || n, n) from generate_series(1, 9) as n)",
         "more than 8 names"),
        ("near => 'm', near_patience => '100 years'", "near_patience must be 0 to 1 day"),
        ("near => 'm', near_patience => '-1 s'", "near_patience must be 0 to 1 day"),
    ],
)  # fmt: skip
async def test_plain_sql_refuses_the_same(app, given, said):
    database = (await app.rota.store()).database
    with pytest.raises(SubmitError, match=said):
        async with database.transaction() as connection:
            await connection.fetchval(
                f"select {app.settings.schema}.submit('light', '{{}}', {given})"
            )


@pytest.mark.parametrize("given", [{"memory": 1e300}, {"memory": 10**40}, {"Memory": "2GB"}])
def test_a_node_that_claims_the_impossible_is_refused(app, given):
    with pytest.raises(ConfigError, match="resources"):
        Node(app, ["worker"], resources=given)


async def test_a_node_may_have_more_names_than_a_job_may_ask_for(app):
    node = Node(app, ["worker"], resources={f"licence{n}": n for n in range(1, 12)})
    await node.start()
    try:
        (found,) = await app.nodes.list()
        assert found.resources["licence11"] == 11
        assert "licence11=0/11" in said_public(found.resources, found.used)
    finally:
        await node.stop()


async def test_nodes_tell_what_they_have(app):
    node = await register(app)
    try:
        (found,) = await app.nodes.list()
        assert found.resources["gpu"] == 2
        assert found.resources["memory"] > 0
        assert found.resources["cpu"] > 0
        assert found.labels == ("model7",)
        assert found.used == {}
    finally:
        await node.stop()


async def test_a_submit_that_no_live_node_can_fit_is_warned_of(app, make_app):
    node = await register(app)
    try:
        client = make_app()
        handle = await client.submit("train", {}, needs=[], resources={"gpu": 3})
        assert "it needs gpu=3; the largest node has gpu=2" not in str(
            handle.warnings
        )  # other queue
        handle = await client.submit("train", {}, needs=[], resources={"gpu": 3}, queue="nothing")
        assert "it needs gpu=3; the largest node has gpu=2" in str(handle.warnings)
        fits = await client.submit("train", {}, needs=[], resources={"gpu": 2}, queue="nothing")
        assert fits.warnings == ()
    finally:
        await node.stop()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"resources": {"memory": "lots"}}, "no size"),
        ({"resources": {"gpu": -1}}, "gpu must be a number"),
        ({"resources": {"gpu": 0}}, "gpu must be above 0"),
        ({"resources": {"g p u": 1}}, "not a usable name"),
        ({"resources": ["gpu"]}, "must be a dict"),
        ({"resources": {1: 1, "gpu": 1}}, "1 is not a usable name"),
        ({"resources": {"memory": 1e300}}, "memory must be at most 1024TB"),
        ({"resources": {"memory": 10**40}}, "memory must be at most 1024TB"),
        ({"resources": {"memory": "1025TB"}}, "memory must be at most 1024TB"),
        ({"resources": {"memory": float("nan")}}, "memory must be at most 1024TB"),
        ({"resources": {"Memory": "2GB"}}, "'Memory' must be written 'memory'"),
        ({"resources": {"CPU": 2}}, "'CPU' must be written 'cpu'"),
        ({"near": "two words"}, "near 'two words' is not a usable name"),
        ({"near_patience": 5}, "near_patience needs near"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(app, given, said):
    with pytest.raises((ConfigError, InvalidArguments), match=said):
        app.task(name="wrong", **given)(lambda: None)
    with pytest.raises((ConfigError, InvalidArguments), match=said):
        app.tasks["light"].options(**given)


async def test_schedules_and_steps_have_them_too(app):
    options = {"resources": {"gpu": 2}, "near": ""}
    await app.schedules.put(make_spec("nightly", "train", cron="0 3 * * *", options=options))
    job = await app.jobs.get((await app.schedules.trigger("nightly")).job_id)
    assert asked(job) == (("cuda",), {"gpu": 2}, None)

    flow = app.workflow("training")
    flow.step(app.tasks["train"], 1)
    flow.step(app.tasks["train"], 2, name="more", resources={"gpu": 4, "memory": "3GB"}, needs=[])
    await flow.start()
    jobs = await app.jobs.list(task="train")
    steps = sorted((asked(one) for one in jobs if one.run_id is not None), key=str)
    assert steps == [
        (("cuda",), {"cpu": 0.5, "gpu": 1, "memory": 2 * GIB}, "model7"),
        ((), {"gpu": 4, "memory": 3 * GIB}, "model7"),
    ]
