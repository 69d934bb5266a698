"""Makes jobs, events and logs for tests of the server, over HTTP and in its tables."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from rota import App
from tests.support.server_fixtures import LiveServer

INSERT_EVENT = (
    "insert into {}.event (namespace, kind, task, detail) values ($1, 'slow', $2, '{{}}')"
)


async def query(server: LiveServer, sql: str, *arguments: Any) -> list[Any]:
    """As the owner of the tables; `{}` is the schema."""
    async with (await server.app.store()).database.connection() as connection:
        in_schema = sql.replace("{}.", f"{server.app.settings.schema}.")
        return await connection.fetch(in_schema, *arguments)


async def submit(client, **said):
    answer = await client.post("/v1/jobs", json={"task": "work", **said})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def fail_jobs(app: App, ids: list[str], message: str = "no luck") -> None:
    """As if a worker had given them up."""
    store = await app.store()
    async with store.database.connection() as c:
        await c.execute(
            f"""with gone as (delete from {app.settings.schema}.present where id = any($1::uuid[])
                returning id, due_at, created_at, priority, guarantee, max_attempts, crashes, namespace,
                    lane, task, key, payload, headers)
            insert into {app.settings.schema}.dead (id, due_at, created_at, finished_at, state, priority,
                guarantee, attempt, max_attempts, crashes, namespace, lane, task, key, payload, headers,
                error)
            select id, due_at, created_at, clock_timestamp(), 6, priority, guarantee, 1, max_attempts,
                crashes, namespace, lane, task, key, payload, headers, $2 from gone""",
            ids, json.dumps({"type": "ValueError", "message": message}),
        )  # fmt: skip


async def end_as(server: LiveServer, id: str, outcome: str) -> None:
    """As if its only attempt had ended so."""
    await fail_jobs(server.app, [id])
    entry = {"number": 1, "outcome": outcome, "token": 1, "node": "-"}
    query = f"update {server.app.settings.schema}.dead set attempts = $2 where id = $1"
    async with (await server.app.store()).database.connection() as connection:
        await connection.execute(query, UUID(id), json.dumps([entry]))


async def tell(server: LiveServer, task: str, connection: Any = None, namespace="default") -> None:
    """An event, in a transaction of its own or in the connection's."""
    query = INSERT_EVENT.format(server.app.settings.schema)
    if connection is not None:
        await connection.execute(query, namespace, task)
        return
    async with (await server.app.store()).database.connection() as c:
        await c.execute(query, namespace, task)


async def log(server: LiveServer, job_id: str, *texts: str, token: int = 1) -> None:
    schema = server.app.settings.schema
    async with (await server.app.store()).database.connection() as c:
        for text in texts:
            await c.execute(
                f"insert into {schema}.job_log"
                " (job_id, token, seq, at, attempt, namespace, stream, text)"
                " select $1::uuid, $2::int, coalesce(max(seq), 0) + 1, now(), $2::int, 'default',"
                f" 'stdout', $3 from {schema}.job_log where job_id = $1::uuid and token = $2::int",
                job_id, token, text,
            )  # fmt: skip
