"""What users may rely on: the public names, and errors that explain themselves."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import rota
import rota.testing
from rota import errors

PUBLIC = [
    "All", "App", "Attempt", "Audit", "CONTEXT", "INJECTED", "CallFailed", "CatchUp", "ConfigError",
    "Context", "DuplicateJob", "DurableContext", "DurableFunction", "Event", "EventLoopRunning",
    "Explanation", "Failure", "Fatal", "HistoryNotKept", "Injected", "InvalidArguments", "Job",
    "JobError", "JobFailed", "JobHandle",
    "JobInfo", "JobStopped", "KeyConflict", "Latest", "LeaseLost", "NoCatchUp", "Node",
    "NodeStatus", "NotFound", "OccurrenceInfo", "OccurrenceStatus", "OnceNotKept", "OnceUnknown",
    "PayloadTooLarge", "PersonErased", "QueueFull", "QueueStatus", "ResultUnavailable", "Retry",
    "RetryAfter",
    "RotaError", "RunCancelled", "RunFailed", "RunHandle", "ScheduleSpec", "ScheduleStatus",
    "SchemaMismatch", "Settings", "ShardStatus", "State", "StepFailed", "StoreUnavailable",
    "Submission", "SubmitError", "SyncContext", "SyncDurableContext", "Takeover", "Task",
    "UnfitArguments", "UnknownTask", "WaitTimedOut", "Workflow", "__version__", "chain", "chord",
    "group",
]  # fmt: skip

ERRORS = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, BaseException)
]


def test_the_public_names_are_these_and_all_are_there():
    assert sorted(rota.__all__) == sorted(PUBLIC)
    assert [name for name in PUBLIC if not hasattr(rota, name)] == []


def test_the_testing_names_are_these():
    assert sorted(rota.testing.__all__) == [
        "EndlessRun", "Sandbox", "SyncSandbox", "isolated", "isolated_sync",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", sorted(set(PUBLIC) - {"CONTEXT", "INJECTED", "Injected", "NoCatchUp", "__version__"})
)
def test_every_public_name_has_a_docstring_of_its_own(name):
    public = getattr(rota, name)
    own = vars(public).get("__doc__") if inspect.isclass(public) else public.__doc__
    assert (own or "").strip()


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_has_a_docstring_of_its_own(error):
    assert (vars(error).get("__doc__") or "").strip()


def test_every_error_that_rota_raises_on_purpose_is_caught_by_one_of_two_bases():
    stray = [error for error in ERRORS if not issubclass(error, errors.RotaError | errors.JobError)]
    assert stray == [errors.JobStopped]
    assert not issubclass(errors.JobStopped, Exception)


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("rota", ["rota.app", "asyncpg", "msgspec", "httpx"]),
        (
            "rota.client",
            [
                "rota.app",
                "rota.store",
                "rota.operations",
                "rota.server",
                "asyncpg",
                "litestar",
                "uvicorn",
                "jinja2",
                "argon2",
                "yaml",
                "typer",
            ],
        ),
        ("rota.app", ["rota.node", "rota.server", "rota.cli", "litestar", "uvicorn", "jinja2"]),
    ],
)
def test_an_import_loads_what_it_needs(module: str, left_out: list[str]) -> None:
    code = f"import sys, {module}; print([each for each in {left_out} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_a_name_that_is_not_there_is_an_attribute_error():
    assert rota.errors.RotaError is errors.RotaError
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        rota.Nothing  # noqa: B018
    assert "App" in dir(rota)
