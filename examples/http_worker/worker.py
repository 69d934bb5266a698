"""A worker for Rota that needs Python and nothing else: no package, no database, only HTTP.

ROTA_URL=http://127.0.0.1:8400 ROTA_TOKEN=rota_... python worker.py
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

URL = os.environ.get("ROTA_URL", "http://127.0.0.1:8400") + "/v1/workers"
SLOTS = int(os.environ.get("ROTA_SLOTS", "4"))


class Gone(Exception):
    """The server believes that this worker is dead."""


def call(path: str, body: Any = None, method: str = "POST") -> Any:
    """Until there is an answer. Any call can be repeated: that is what ids and tokens are for."""
    headers = {"Authorization": "Bearer " + os.environ["ROTA_TOKEN"]}
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).replace("\\u0000", "\\ufffd").encode()  # NUL can't be stored
    while True:
        try:
            request = urllib.request.Request(URL + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (404, 410):
                raise Gone from error
            if error.code < 500 and error.code != 429:
                raise RuntimeError(error.read().decode()) from error
        except OSError as error:
            print("no answer, trying again:", error, flush=True)
        time.sleep(1)


class Job:
    """What a handler is given. It should look at `stop` now and then, and return when it is set."""

    def __init__(self, worker: str, claimed: dict[str, Any]) -> None:
        self.path = f"/{worker}"
        self.payload = claimed["payload"]
        self.task, self.timeout = claimed["task"], claimed["timeout"]
        self.ticket = {"job": claimed["job"], "token": claimed["token"]}
        self.stop = threading.Event()
        self.cancelled = False
        self.lives = False  # whether the handler has given a sign of life since the last heartbeat
        self._lines = 0

    def alive(self) -> None:
        """To be called by a handler of a task with `heartbeat_timeout`, whenever it gets on."""
        self.lives = True

    def log(self, line: str) -> None:
        self._lines += 1
        item = {**self.ticket, "first": self._lines, "lines": [line]}
        call(self.path + "/logs", {"items": [item]})

    def progress(self, done: float, total: float) -> None:
        call(self.path + "/progress", {"items": [{**self.ticket, "done": done, "total": total}]})

    def run(self) -> None:
        outcome: dict[str, Any] = {"outcome": "succeeded"}
        overtime = threading.Timer(self.timeout or threading.TIMEOUT_MAX, self.stop.set)
        overtime.daemon = True
        overtime.start()
        try:
            outcome["result"] = HANDLERS[self.task](self)
            if self.stop.is_set():
                raise TimeoutError("took too long")
        except Exception as error:  # noqa: BLE001 - whatever it raises, the server decides
            told = {"type": type(error).__name__, "message": str(error)}
            outcome = {"outcome": "failed", "error": {**told, "traceback": traceback.format_exc()}}
        overtime.cancel()
        if self.cancelled:
            outcome = {"outcome": "cancelled"}
        [answer] = call(self.path + "/finish", {"items": [{**self.ticket, **outcome}]})["items"]
        print(answer["answer"], outcome["outcome"], self.task, self.ticket["job"], flush=True)


class Worker:
    def __init__(self) -> None:
        self.jobs: list[Job] = []  # all that run here, until their finish was answered
        self.free = threading.Semaphore(SLOTS)
        self.register()
        threading.Thread(target=self.beat, daemon=True).start()

    def register(self) -> None:
        said = {"id": str(uuid.uuid4()), "name": "python", "slots": SLOTS, "tasks": TASKS}
        answer = call("", said)
        self.id, self.pause = answer["id"], answer["heartbeat_seconds"]
        print("registered", self.id, flush=True)

    def beat(self) -> None:
        while True:
            time.sleep(self.pause)
            jobs = [job for job in self.jobs if job.path == f"/{self.id}"]
            alive = [job for job in jobs if job.lives]
            for job in alive:
                job.lives = False
            try:
                said = {
                    "jobs": [job.ticket for job in jobs],
                    "alive": [job.ticket for job in alive],
                }
                answer = call(f"/{self.id}/heartbeat", said)
            except Gone:  # whatever runs here is another's by now
                answer = {"cancel": [], "lost": [job.ticket for job in jobs]}
                self.register()
            for job in jobs:
                job.cancelled = job.cancelled or job.ticket in answer["cancel"]
                if job.ticket in answer["cancel"] + answer["lost"]:
                    job.stop.set()

    def claim(self) -> None:
        """Waits for a free slot, then for work; and takes as much as it can start at once."""
        self.free.acquire()
        most = 1
        while most < SLOTS and self.free.acquire(blocking=False):
            most += 1
        worker = self.id
        jobs: list[dict[str, Any]] = []
        try:
            said = {"request": str(uuid.uuid4()), "max": most, "wait": 20}
            jobs = call(f"/{worker}/claim", said)["jobs"]
        except Gone:
            time.sleep(1)  # the next heartbeat registers anew
        for claimed in jobs:
            job = Job(worker, claimed)
            self.jobs.append(job)
            threading.Thread(target=self.work, args=(job,), daemon=True).start()
        for _ in range(most - len(jobs)):
            self.free.release()

    def work(self, job: Job) -> None:
        try:
            job.run()
        except Gone:
            print("gone", job.task, job.ticket["job"], flush=True)
        finally:
            self.jobs.remove(job)
            self.free.release()

    def leave(self) -> None:
        """What runs may end within ten seconds; the rest is given back."""
        ends = time.monotonic() + 10
        while self.jobs and time.monotonic() < ends:
            time.sleep(0.05)
        print("left, returned", call(f"/{self.id}", method="DELETE")["returned"], flush=True)


# -- what it can do


def greet(job: Job) -> str:
    return f"Hello, {job.payload['name']}!"


def divide(job: Job) -> float:
    quotient: float = job.payload["a"] / job.payload["b"]
    return quotient


def count(job: Job) -> int:
    """Something that lasts, tells how far it is, and can be stopped."""
    total: int = job.payload["to"]
    job.log(f"counting to {total}")
    for done in range(total):
        if job.stop.wait(0.1):
            return done
        job.alive()
        if done % 10 == 0:
            job.progress(done, total)
    return total


HANDLERS: dict[str, Callable[[Job], Any]] = {"greet": greet, "divide": divide, "count": count}
NUMBER = {"required": True, "types": ["number"]}  # a submit that doesn't fit is refused
TASKS: list[Any] = [
    "greet",
    {
        "name": "divide",
        "retry": {"max_attempts": 3, "never_on": ["ZeroDivisionError"]},
        "signature": {"arguments": {"a": NUMBER, "b": NUMBER}},
    },
    {
        "name": "count",
        "timeout": 300,
        "heartbeat_timeout": 60,
        "signature": {"arguments": {"to": {"required": True, "types": ["integer"]}}},
    },
]

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    worker = Worker()
    try:
        while True:
            worker.claim()
    except (KeyboardInterrupt, SystemExit):
        worker.leave()
