"""Enqueue what a real worker runs, wait, and print what became of it as JSON."""

import json
import time

import django

django.setup()

from conform import tasks
from conform.models import Note
from conform.more import far_away

results = {
    "add": tasks.add.enqueue(2, b=3), "anote": tasks.anote.enqueue("from a coroutine"),
    "fail": tasks.fail.enqueue("three times"), "exactly": tasks.exactly.enqueue("once"),
    "dies_once": tasks.dies_once.enqueue("killed"), "far_away": far_away.enqueue(),
    "slow": tasks.slow.enqueue(), "odd_result": tasks.odd_result.enqueue(),
}  # fmt: skip
end = time.monotonic() + 90
while time.monotonic() < end and not all(result.is_finished for result in results.values()):
    time.sleep(0.2)
    for result in results.values():
        result.refresh()

print(json.dumps({
    "results": {
        name: [
            result.status, result.attempts,
            result.return_value if result.status == "SUCCESSFUL" else None,
            [error.exception_class_path for error in result.errors],
        ]
        for name, result in results.items()
    },
    "notes": sorted(Note.objects.values_list("text", flat=True)),
}))  # fmt: skip
