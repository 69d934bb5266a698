"""The conventions of the command line, checked over the whole tree of commands."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from typing import Any

import msgspec
import pytest
import yaml

from rota.cli.faults import EXIT_CODES
from rota.cli.output import Screen
from tests.support.command_line import ROOT, commands, run

VERBS = """acknowledge add allow apply cancel change check compare count create declare delete discard
encrypt end erase explain export forecast forget import limit list manage migrate pause preview print
remove replay resume retire retry revoke run send set show silence skip start stop submit trigger
undo use withdraw"""
DESTRUCTIVE = "erase remove delete revoke discard end unlimit apply import backfill"
# Options that have one meaning everywhere; the same name elsewhere needs a reason, given below.
SHARED = """--yes --limit --since --until --output --json --namespace --database-url --dry-run
--server --profile --all-namespaces --from --to --max-attempts --heartbeat-timeout --app --tag --need
--priority --tz --gap --fold --cron --every --calendar --rrule --allow-commands --port"""
OTHER_MEANINGS = {
    ("schedules pause", "--until"): "the end of the pause",
    ("schedules forecast", "--tz"): "of what is shown, not of a rule",
    ("schedules import", "--tz"): "of a source",
    ("schedules import", "--from"): "the kind of the source",
    ("schedules import", "--app"): "its tasks give names to arguments",
    ("jobs list", "--tag"): "a filter",
    ("schedules list", "--tag"): "a filter",
    ("endpoints add", "--max-attempts"): "with the default of endpoints",
    ("endpoints change", "--max-attempts"): "with the default of endpoints",
}


TREE = dict(commands())
LEAVES = {path: each for path, each in TREE.items() if not hasattr(each, "commands")}


def options_of(command: Any) -> dict[str, Any]:
    return {
        name: parameter
        for parameter in command.params
        for name in parameter.opts
        if name.startswith("--")
    }


@pytest.mark.parametrize("path", [path for path in TREE if path])
def test_a_help_text_begins_with_a_verb(path: str):
    text = TREE[path].help or ""
    assert text, f"rota {path} has no help text"
    assert text.split()[0].rstrip(":,").lower() in VERBS.split(), f"rota {path}: {text}"


@pytest.mark.parametrize("path", list(TREE))
def test_every_option_and_argument_is_described(path: str):
    for parameter in TREE[path].params:
        text = getattr(parameter, "help", None)
        assert text, f"rota {path}: {parameter.name} has no help text"
        assert text[0].isupper() or not text[0].isalpha() or text.split()[0].rstrip(",") in (
            "scheduler", "bash"), f"rota {path}: {text}"  # fmt: skip


def test_options_of_the_same_meaning_have_the_same_help_text():
    texts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, command in TREE.items():
        for name, option in options_of(command).items():
            if name in SHARED.split() and (path, name) not in OTHER_MEANINGS:
                texts[name][option.help].append(path)
    assert {name: dict(found) for name, found in texts.items() if len(found) > 1} == {}


def test_every_other_meaning_is_one_that_is_there():
    for path, name in OTHER_MEANINGS:
        assert name in options_of(TREE[path]), (path, name)


@pytest.mark.parametrize("path", list(TREE))
def test_every_command_has_the_common_options(path: str):
    found = options_of(TREE[path])
    assert {"--output", "--json", "--namespace", "--database-url", "--server"} <= set(found)
    assert "-o" in found["--output"].opts


LISTS = [
    path for path, each in LEAVES.items()
    if each.help.startswith(("List", "Count")) and not any(p.required for p in each.params)
]  # fmt: skip


@pytest.mark.parametrize("path", LISTS)
def test_a_listing_is_the_same_in_json_and_yaml(path: str, environ: dict[str, str]):
    as_json, as_yaml = (run(*path.split(), "--output", output) for output in ("json", "yaml"))
    assert (as_json.code, as_yaml.code) == (0, 0), as_yaml.err
    # Numbers that change from moment to moment, such as ages, are left out by an empty database.
    assert yaml.safe_load(as_yaml.out) == as_json.json


def test_the_listings_are_those_one_expects():
    assert {"jobs list", "schedules list", "queues limits", "queues list", "nodes list", "events",
            "audit list", "users list", "roles list", "roles permissions",
            "tokens list", "sessions list", "namespaces list",
            "webhooks list", "endpoints list", "shards", "encrypt", "jobs dead", "workflows list",
            "runs list",
            "signals list", "profiles list", "tasks list", "triggers list", "alerts list",
            "jobs changes", "pools list", "persons list",
            "maintenance list", "sinks list", "history partitions"} == set(LISTS)  # fmt: skip


@pytest.mark.parametrize("path", list(LEAVES))
def test_a_destructive_command_asks_and_has_yes(path: str):
    if path.split()[-1] in DESTRUCTIVE.split():
        assert "--yes" in options_of(LEAVES[path]), f"rota {path} has no --yes"
        assert "-y" in options_of(LEAVES[path])["--yes"].opts


def test_the_root_help_is_grouped_and_tells_the_exit_codes():
    panels = {name: getattr(each, "rich_help_panel", None) for name, each in ROOT.commands.items()}
    assert set(panels.values()) == {"Daily", "Operating", "Administering", "Other"}
    for code, text in EXIT_CODES.items():
        assert f"{code}: {text}" in ROOT.epilog


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_document_is_the_same_in_json_and_yaml(output: str, capsys: pytest.CaptureFixture[str]):
    document = [{"name": "a: b", "none": None, "number": 1.5, "list": ["no", "yes", "1"]}]
    Screen(output).document(document)  # type: ignore[arg-type]
    text = capsys.readouterr().out
    read = msgspec.json.decode(text) if output == "json" else yaml.safe_load(text)
    assert read == document


def rota(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'rota'; from rota.cli import main; main()",
         *arguments],
        capture_output=True, text=True, timeout=120, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )  # fmt: skip


@pytest.mark.parametrize("given", [["-o", "yaml"], ["--output=yaml"], ["-oyaml"]])
def test_the_output_can_be_chosen_before_and_after_the_command(given: list[str]):
    for arguments in ([*given, "version"], ["version", *given]):
        assert set(yaml.safe_load(run(*arguments).out)) == {"rota", "python"}


def test_exit_codes_and_errors_for_programs():
    assert rota("version").returncode == 0
    unknown = rota("version", "--nothing", "-o", "json")
    assert unknown.returncode == 2
    assert msgspec.json.decode(unknown.stderr)["error"]["type"] == "UsageError"
    refused = run("encrypt", "--new-key", "not a name", "-o", "yaml")
    assert refused.code == 1
    assert yaml.safe_load(refused.err)["error"]["type"] == "ConfigError"
    silent = run("tokens", "revoke", "abc", "--json")
    assert silent.code == 2
    assert "--yes" in silent.error["message"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell: str):
    script = rota("completion", shell)
    assert script.returncode == 0
    assert "_ROTA_COMPLETE" in script.stdout


def test_completion_offers_the_commands():
    offered = rota(_ROTA_COMPLETE="complete_bash", COMP_WORDS="rota na", COMP_CWORD="1")
    assert offered.stdout.split() == ["namespaces"]
