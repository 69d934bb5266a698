"""Durations as people read them: one way in the CLI, the dashboard, explanations and events."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import rota.server.dashboard
from rota.core.durations import format_distance, format_duration
from rota.operations.event_text import sentence
from rota.server.dashboard.words import span

SCRIPT = Path(rota.server.dashboard.__file__).parent / "static" / "rota.js"
SHOWN = {
    0: "0 s", 0.000_000_1: "under 0.01 ms", 0.000_2: "0.2 ms", 0.009_96: "10 ms", 0.034: "34 ms",
    0.999_4: "999 ms", 0.999_6: "1 s", 1.24: "1.2 s", 30: "30 s", 59.94: "59.9 s", 59.96: "1 min",
    200: "3 min 20 s", 3599.6: "1 h", 3600: "1 h", 10_620: "2 h 57 min", 10_799: "3 h",
    86_400: "24 h", 172_799: "2 d", 200_000: "2 d 8 h", 86_400 * 1234: "1,234 d",
    float("inf"): "for ever",
}  # fmt: skip


@pytest.mark.parametrize(("seconds", "shown"), SHOWN.items())
def test_a_duration_is_shown_in_its_two_largest_units_rounded_to_the_nearest(
    seconds: float, shown: str
) -> None:
    assert format_duration(seconds) == shown
    assert span(seconds) == shown


def test_three_hours_less_a_second_are_not_two_hours() -> None:
    distances = [10_799.2, -90, 0.2, 1.4, -10_799.2]
    shown = [format_distance(seconds) for seconds in distances]
    assert shown == ["in 3 h", "1 min 30 s ago", "now", "in 1 s", "3 h ago"]


def test_an_event_of_a_quick_task_does_not_say_that_it_ran_for_nothing() -> None:
    detail = {"ran": 0.0012, "expected": 0.0002}
    told = sentence({"kind": "slow", "task": "ping", "detail": detail})
    assert told == "ping ran 1.2 ms, expected 0.2 ms"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_script_of_the_dashboard_shows_distances_as_the_server_does() -> None:
    found = re.search(r"^function distance\(.*?^}", SCRIPT.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    seconds = [0.4, 1.4, 59.6, 60, 90, 3599.6, 10_620, 10_799, 86_400, 172_799, 200_000, 1e8]
    numbers = [sign * number for number in seconds for sign in (1, -1)]
    program = f"{found[0]}\nconsole.log({numbers}.map(distance).join('|'))"
    told = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip().split("|") == [format_distance(number) for number in numbers]
