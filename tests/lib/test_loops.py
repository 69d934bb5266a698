"""rota/lib/loops.py: which event loop a node runs on."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from rota import ConfigError
from rota.lib.loops import loop_maker


class Loop(asyncio.SelectorEventLoop):
    """As uvloop's: made by a function of the module."""


@pytest.fixture
def uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("uvloop")
    module.new_event_loop = Loop
    monkeypatch.setitem(sys.modules, "uvloop", module)


@pytest.fixture
def no_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # as if it were not installed


@pytest.mark.usefixtures("uvloop")
@pytest.mark.parametrize(
    ("choice", "made"),
    [("auto", Loop), ("uvloop", Loop), ("asyncio", asyncio.new_event_loop)],
)
def test_where_uvloop_is_installed_it_is_used_unless_the_settings_say_otherwise(
    choice: str, made: Any
) -> None:
    assert loop_maker(choice) is made


@pytest.mark.usefixtures("no_uvloop")
def test_without_uvloop_the_standard_loop_is_used() -> None:
    assert loop_maker("auto") is asyncio.new_event_loop


@pytest.mark.usefixtures("no_uvloop")
def test_uvloop_that_was_asked_for_and_is_missing_is_an_error_that_says_how_to_get_it() -> None:
    with pytest.raises(ConfigError, match=r"pip install 'rota\[uvloop\]'"):
        loop_maker("uvloop")


@pytest.mark.usefixtures("uvloop")
def test_a_node_of_the_command_line_runs_on_the_loop_that_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rota.cli import cli  # here: the other tests start without it

    seen: list[type] = []

    async def run(*_: object) -> None:
        seen.append(type(asyncio.get_running_loop()))

    monkeypatch.setattr("rota.node.Node.run", run)
    monkeypatch.setenv("ROTA_DATABASE_URL", "postgresql://localhost:1/nowhere")
    for choice in ("auto", "asyncio"):
        monkeypatch.setenv("ROTA_EVENT_LOOP", choice)
        result = CliRunner().invoke(cli, ["start", "--role", "scheduler"])
        assert result.exit_code == 0, result.output

    assert seen[0] is Loop
    assert seen[1] is not Loop
