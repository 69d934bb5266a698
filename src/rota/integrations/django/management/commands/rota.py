"""`manage.py rota`: Rota's command line, for the backend and the database of this project."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError

from rota.config import Settings
from rota.errors import ConfigError
from rota.integrations.django.project import app_of, options_of, variable_of

_HELP = """\
usage: manage.py rota COMMAND [--backend ALIAS] [options]

  worker      Run a scheduler and a worker until Ctrl-C. --reload: again when a file changes.
  dev         Run everything in this terminal, again when a file changes (--noreload: not).
  server      Run the server: dashboard and REST API.
  scheduler   Run a scheduler without a worker.
  ...         Every other command of `rota`: jobs, queues, schedules, migrate (`manage.py rota --help`).

The database, namespace and other settings are those of TASKS[ALIAS] ("default" unless named).
"""
_ROLES = {
    "worker": ("scheduler", "worker"), "server": ("server",), "scheduler": ("scheduler",),
}  # fmt: skip
_DJANGOS = ("--settings", "--pythonpath", "--verbosity", "-v")  # of manage.py itself, with a value
_DJANGOS_FLAGS = ("--traceback", "--no-color", "--force-color", "--skip-checks")


class Command(BaseCommand):  # type: ignore[misc]
    help = "Rota: worker, dev, server, and every command of `rota`."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass the arguments on as they are: they are Rota's, not Django's."""
        raise SystemExit(self._run(_without_djangos(argv[2:])))

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs="*")
        parser.add_argument("--backend")

    def handle(
        self, *args: Any, arguments: list[str], backend: str | None = None, **options: Any
    ) -> None:
        """Serve `call_command("rota", "migrate")`."""
        chosen = ["--backend", backend] if backend else []
        if code := self._run([*arguments, *chosen]):
            raise CommandError(f"rota {' '.join(arguments)} failed", returncode=code)

    def _run(self, arguments: list[str]) -> int:
        arguments, alias = _take_option(arguments, "--backend")
        if not arguments or arguments[0] in ("help", "-h"):
            self.stdout.write(_HELP)
            return 0
        name, rest = arguments[0], arguments[1:]
        wants_reload = "--reload" in rest or (name == "dev" and "--noreload" not in rest)
        rest = [each for each in rest if each not in ("--reload", "--noreload")]
        if wants_reload:
            from rota.integrations.django.reload import reload_forever

            own = ["--backend", alias] if alias else []
            return reload_forever(["rota", name, *own, *rest, "--noreload"], self.stderr.write)
        try:
            options, app = options_of(alias), app_of(alias)
        except ConfigError as error:
            raise CommandError(str(error)) from None
        self._export(app.settings)
        reference = f"rota.integrations.django.project:{variable_of(options.alias)}"
        return self._call(_translated(name, rest, reference))

    def _export(self, settings: Settings) -> None:
        """Give the settings to Rota's commands, and to child processes."""
        for field in msgspec.structs.fields(Settings):
            value = getattr(settings, field.name)
            if value is not None and value != getattr(Settings(), field.name):
                os.environ[f"ROTA_{field.name.upper()}"] = str(value)

    def _call(self, arguments: list[str]) -> int:
        from rota.cli import cli

        try:
            cli(args=arguments, prog_name="manage.py rota")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0


def _translated(name: str, rest: list[str], reference: str) -> list[str]:
    if name in _ROLES:
        roles = [part for role in _ROLES[name] for part in ("--role", role)]
        return ["start", reference, *roles, *rest]
    if name in ("dev", "start"):
        return [name, reference, *rest]
    return [name, *rest]


def _take_option(arguments: list[str], name: str) -> tuple[list[str], str | None]:
    """Return the arguments without an option, and its value."""
    for place, each in enumerate(arguments):
        if each == name and place + 1 < len(arguments):
            return arguments[:place] + arguments[place + 2 :], arguments[place + 1]
        if each.startswith(f"{name}="):
            return arguments[:place] + arguments[place + 1 :], each.partition("=")[2]
    return arguments, None


def _without_djangos(arguments: list[str]) -> list[str]:
    """Leave out the options that manage.py has for every command, which it has read already."""
    for name in _DJANGOS:
        arguments, _ = _take_option(arguments, name)
    return [each for each in arguments if each not in _DJANGOS_FLAGS]
