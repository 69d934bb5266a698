"""`rota dev` with two namespaces, one full of broken schedules: the other has no gap."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta

import httpx

from proof.waiting import eventually
from rota import All, App
from tests.support.broken_schedules import add_broken
from tests.support.command_line import stop, told
from tests.support.places import ROTA, SUPPORT

# ROTA_TEST_SECONDS=60 for the long run.
SECONDS = int(os.environ.get("ROTA_TEST_SECONDS", "5"))


async def test_ten_broken_schedules_of_one_namespace_leave_no_gap_in_another(
    make_app: Callable[..., App],
) -> None:
    good, bad = make_app(), make_app(namespace="bad")
    names = await add_broken(bad, "greet")
    await good.schedule(
        "tick", "greet", cron="* * * * * *", overlap="allow", catch_up=All(), payload={"name": "x"}
    )
    where = {
        "ROTA_DATABASE_URL": good.settings.database_url or "",
        "ROTA_SCHEMA": good.settings.schema,
        "ROTA_PROCESSES": "1",
    }
    process = subprocess.Popen(
        [ROTA, "dev", "cli_app:app", "--json", "--port", "0"], cwd=SUPPORT, text=True,
        env={**os.environ, **where}, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        up = await asyncio.to_thread(
            lambda: next(line for line in told(process) if "server" in line)
        )
        await fires_every_second(good)
        await dashboard_names(up, names)
    finally:
        assert await asyncio.to_thread(stop, process) == 0


async def fires_every_second(app: App) -> None:
    begin = await (await app.store()).now()
    first = begin.replace(microsecond=0) + timedelta(seconds=1)
    end = first + timedelta(seconds=SECONDS)
    while True:
        rows = await app.schedules.occurrences("tick", first, end)
        if len(rows) >= SECONDS and all(row.job_state == "succeeded" for row in rows):
            break
        await asyncio.sleep(0.2)  # the test's own time limit ends this
    assert [row.due_at for row in rows] == [first + timedelta(seconds=n) for n in range(SECONDS)]
    assert {row.state for row in rows} == {"fired"}
    lags = sorted(row.lag or 0.0 for row in rows)
    print(f"{len(rows)} of {SECONDS} fired; latest start {lags[-1]:.3f} s after its moment")


async def dashboard_names(up: dict[str, str], names: list[str]) -> None:
    async with httpx.AsyncClient(base_url=up["server"], timeout=60) as browser:
        link = up["login"].partition("#")[2]
        assert (await browser.post("/login/link", json={"link": link})).status_code == 200
        browser.headers["Accept"] = "text/html"

        async def all_are_set_aside() -> bool:
            page = await browser.get("/schedules", params={"namespace": "bad"})
            assert page.status_code == 200, page.text
            rows = [
                re.search(rf">{name}</span></a>.*?</tr>", page.text, re.DOTALL) for name in names
            ]
            return all(row and "Does not fire: set aside on" in row[0] for row in rows)

        await eventually(all_are_set_aside, what="the dashboard's word about each")
