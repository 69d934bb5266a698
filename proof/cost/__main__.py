"""`python -m proof.cost`: every route, every kind of body. See the package."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from proof.cost.measure import STRANGERS_LIMIT, Cost, Fuzzer, make_names, objections
from rota import App
from rota.operations.installation import Installation
from rota.server.openapi import make_document
from rota.server.policy import route_table
from rota.server.requests import DEPENDENCIES
from rota.server.routes import all_routes
from rota.server.serving import Server

_SIZE = 256_000


async def run(app: App, size: int, few: bool, only: str) -> int:
    await app.migrate()
    server = Server(app)
    await server.start()
    try:
        create = Installation(app.connector).tokens.create
        tokens = {
            role: (await create(role, namespace="default", everywhere=True, role=role)).token
            for role in ("admin", "worker")
        }
        fuzzer = Fuzzer(server.asgi, tokens, await make_names(app))
        fuzzer.document = document_of(server)
        return await judge(fuzzer, size, few, only)
    finally:
        await server.stop()
        await app.close()


def document_of(server: Server) -> dict[str, Any]:
    """The OpenAPI document: what each route's body looks like."""
    assert server.asgi is not None
    made = make_document(all_routes(), DEPENDENCIES, list(route_table(server.asgi)))
    document: dict[str, Any] = msgspec.json.decode(made)
    return document


async def judge(fuzzer: Fuzzer, size: int, few: bool, only: str) -> int:
    routes = [route for route in fuzzer.routes() if only in f"{route.method} {route.path}"]
    plain = await fuzzer.plain_cost(size)
    print(f"plain JSON: {plain * 1e6:.1f} us a kilobyte; bodies of {size:,} bytes\n")
    wrong: list[str] = []
    worst: list[Cost] = []
    for route in routes:
        costs = []
        for kind in fuzzer.kinds_for(route, few):
            for token in (True, False):
                public = route.policy.role is None
                largest = size if token and not public else min(size, STRANGERS_LIMIT)
                cost = await fuzzer.cost(route, kind, largest, token=token)
                found = list(objections(cost, plain))
                if found:  # once more: another program may have been in the way
                    cost = await fuzzer.cost(route, kind, largest, token=token)
                    found = list(objections(cost, plain))
                wrong += found
                costs.append(cost)
        worst.append(max(costs, key=lambda cost: cost.per_kilobyte))
    worst.sort(key=lambda cost: cost.per_kilobyte, reverse=True)
    print("| route | worst body | us per kB |\n| --- | --- | --- |")
    for cost in worst:
        print(f"| `{cost.route}` | {cost.kind} | {cost.per_kilobyte * 1e6:.0f} |")
    print(
        f"\n{len(routes)} routes. " + (f"{len(wrong)} objections:" if wrong else "No objections.")
    )
    print("\n".join(wrong))
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.cost", description=__doc__)
    parser.add_argument("--size", type=int, default=_SIZE, help="bytes of the larger bodies")
    parser.add_argument("--few", action="store_true", help="only some kinds of bodies")
    parser.add_argument("--only", default="", help="routes that contain this")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rota-cost-"))
    try:
        app = App(data_dir=folder, port=0)
        return asyncio.run(run(app, given.size, given.few, given.only))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
