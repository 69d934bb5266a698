"""A worker over HTTP in the hands of a test: it says exactly what the test wants it to."""

from __future__ import annotations

from typing import Any, Protocol
from uuid import UUID, uuid4

import httpx

from rota import App
from tests.support.server_fixtures import LiveServer


class HasApp(Protocol):
    @property
    def app(self) -> App: ...


async def submit(server: HasApp, task: str = "work", **options: Any) -> UUID:
    payload = options.pop("payload", {})
    return (await server.app.submit(task, payload, **options)).id


async def with_guarantee(server: LiveServer, guarantee: str, task: str = "work") -> UUID:
    client = await server.client("operator")
    answer = await client.post("/v1/jobs", json={"task": task, "guarantee": guarantee})
    return UUID(answer.json()["id"])


class RemoteWorker:
    def __init__(self, client: httpx.AsyncClient, id: str) -> None:
        self.client = client
        self.id = id

    @classmethod
    async def register(
        cls, server: LiveServer, *tasks: Any, namespace: str = "default", **said: Any
    ) -> RemoteWorker:
        client = await server.client("worker", namespace)
        body = {"name": "test", "slots": 10, "tasks": list(tasks) or ["work"], **said}
        answer = await client.post("/v1/workers", json=body)
        assert answer.status_code == 201, answer.text
        return cls(client, answer.json()["id"])

    async def ask(self, what: str, body: Any) -> httpx.Response:
        return await self.client.post(f"/v1/workers/{self.id}/{what}", json=body)

    async def told(self, what: str, body: Any) -> Any:
        answer = await self.ask(what, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def claim(self, most: int = 10, wait: float = 0, **said: Any) -> list[dict[str, Any]]:
        body = {"request": str(uuid4()), "max": most, "wait": wait, **said}
        return (await self.told("claim", body))["jobs"]

    async def claim_one(self, **said: Any) -> dict[str, Any]:
        [job] = await self.claim(**said)
        return job

    async def heartbeat(self, *jobs: dict[str, Any], **said: Any) -> Any:
        return await self.told("heartbeat", {"jobs": [ticket(job) for job in jobs], **said})

    async def finish(self, job: dict[str, Any], outcome: str = "succeeded", **said: Any) -> str:
        item = {**ticket(job), "outcome": outcome, **said}
        [answer] = (await self.told("finish", {"items": [item]}))["items"]
        return answer["answer"]

    async def say(self, what: str, job: dict[str, Any], **said: Any) -> str:
        [answer] = (await self.told(what, {"items": [{**ticket(job), **said}]}))["items"]
        return answer["answer"]

    async def leave(self) -> httpx.Response:
        return await self.client.delete(f"/v1/workers/{self.id}")


def ticket(job: dict[str, Any]) -> dict[str, Any]:
    return {"job": job["job"], "token": job["token"]}
