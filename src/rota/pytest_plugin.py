"""The pytest plugin: the fixture `rota`, an app on a private schema where the test moves time.

pytest loads this module wherever Rota is installed. It imports nothing of Rota: what the fixture needs
is loaded by the first test that asks for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rota.app import App
    from rota.pytest_sandbox import Schemas
    from rota.testing import Sandbox, SyncSandbox

_MARKER = (
    "rota(now=None, **settings): how the fixture `rota` begins: a time (a datetime, or a text such as "
    "2030-01-01T09:00Z), and settings of the app"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("rota_app", "the app of the fixture `rota`, as module:variable")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def rota_app(pytestconfig: pytest.Config) -> App:
    """The app under test: that of the option `rota_app`. Override this fixture to make one yourself."""
    reference = str(pytestconfig.getini("rota_app"))
    if not reference:
        raise pytest.UsageError(
            "the fixture `rota` doesn't know your app: set `rota_app = module:variable` in pytest's "
            "configuration, or define a fixture `rota_app` that returns it"
        )
    from rota.cli.loading import load_app

    return load_app(reference)


@pytest.fixture(scope="session")
def _rota_schemas() -> Iterator[Schemas]:
    from rota.pytest_sandbox import Schemas

    schemas = Schemas()
    yield schemas
    schemas.drop()


@pytest.fixture
def rota(
    request: pytest.FixtureRequest, rota_app: App, _rota_schemas: Schemas
) -> Iterator[Sandbox | SyncSandbox]:
    """The app on a private, empty schema: submit, `advance` time, `run_due`.

    In a test that is a coroutine it is a `rota.testing.Sandbox`, whose methods are awaited; in a plain
    test a `rota.testing.SyncSandbox`, with the same methods.
    """
    from rota.pytest_sandbox import opened

    marker = request.node.get_closest_marker("rota")
    given: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    if marker is not None and marker.args:
        raise pytest.UsageError(
            '@pytest.mark.rota takes keywords only, as in rota(now="2030-01-01")'
        )
    is_async = inspect.iscoroutinefunction(request.function)
    with opened(rota_app, _rota_schemas, is_async=is_async, **given) as (sandbox, around):
        if is_async and hasattr(request.node, "obj"):
            request.node.obj = around(request.node.obj)
        yield sandbox


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine that uses the fixture where no other plugin does (pytest-asyncio, anyio)."""
    if "rota" not in pyfuncitem.funcargs or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    import asyncio

    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
