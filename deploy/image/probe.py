"""Ask the node of this container whether it is alive: exit with 0 if it is. The image's health check.

`probe.py readyz` asks whether it does its work, which it doesn't while its database is away: a restart
would not help then, so the health check doesn't ask for it.
"""

import http.client
import os
import sys

path = sys.argv[1] if len(sys.argv) > 1 else "healthz"
port = int(os.environ.get("ROTA_METRICS_PORT", "9464"))
host = os.environ.get("ROTA_METRICS_HOST", "127.0.0.1")
host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
try:
    connection = http.client.HTTPConnection(host, port, timeout=4)
    connection.request("GET", f"/{path}")
    answer = connection.getresponse()
    text = answer.read(2000).decode("utf-8", "replace").strip()
except OSError as error:
    sys.exit(f"nothing answers at {host}:{port}: {error}")
print(text)  # noqa: T201 - it is what the health check reports
sys.exit(answer.status != 200)
