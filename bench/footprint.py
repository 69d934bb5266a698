"""What a worker costs that does nothing and uses nothing optional: `python -m bench.footprint`.

Prints the modules and the resident memory of a process that has imported Rota, and of an idle worker
and an idle scheduler after a job. Memory is Linux's, in MB, the least of several processes. What an
import costs in time is in `bench.imports`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from rota import App
from rota.store.embedded import open_embedded

# What only those need who plug in a coordinator or a broker, or call a server.
OPTIONAL = (
    "redis", "nats", "aiokafka", "aio_pika", "aiormq", "kazoo", "httpx", "httpcore",
    "rota.scheduler.coordination.guarded", "rota.scheduler.coordination.etcd",
    "rota.scheduler.coordination.zookeeper", "rota.scheduler.coordination.consul",
)  # fmt: skip
_MEASURE = """
import sys
with open("/proc/self/status") as status:
    kilobytes = [line.split()[1] for line in status if line.startswith("VmRSS")][0]
import json
print(json.dumps([int(kilobytes) / 1024, len(sys.modules), sorted(set(sys.modules) & set(%r))]))
"""
_NODE = """
import asyncio
from rota import App
from rota.node import Node

app = App()

@app.task
async def nothing() -> None: ...

async def main():
    async with app:
        node = Node(app, roles=["%s"])
        async with node.running():
            if "worker" in node.roles:
                await (await nothing.submit()).result(timeout=60)
            await asyncio.sleep(2)
            measure()

def measure():
%s

asyncio.run(main())
"""


class Footprint(msgspec.Struct, array_like=True):
    megabytes: float
    modules: int
    optional: list[str]


def measure(program: str, url: str, schema: str = "rota") -> Footprint:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "ROTA_DATABASE_URL": url, "ROTA_SCHEMA": schema},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return msgspec.json.decode(done.stdout, type=Footprint)


def programs() -> dict[str, str]:
    """Return what is measured, by name."""
    ask = _MEASURE % (OPTIONAL,)
    inside = "\n".join(f"    {line}" for line in ask.strip().splitlines())
    return {
        "import rota": f"import rota\n{ask}",
        "from rota import App": f"from rota import App\n{ask}",
        "idle worker": _NODE % ("worker", inside),
        "idle scheduler": _NODE % ("scheduler", inside),
    }


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rota-") as folder:
        Path(folder).chmod(0o711)
        server = open_embedded(Path(folder))
        try:
            asyncio.run(App(database_url=server.url).migrate())
            print(f"{'':<24}{'MB':>8}{'modules':>10}   optional modules")
            for name, program in programs().items():
                found = [measure(program, server.url) for _ in range(3)]
                least = min(each.megabytes for each in found)
                named = ", ".join(found[0].optional) or "none"
                print(f"{name:<24}{least:>8.1f}{found[0].modules:>10}   {named}")
        finally:
            server.close()


if __name__ == "__main__":
    main()
