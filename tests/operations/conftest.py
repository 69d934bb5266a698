"""Tasks that the tests of several operations declare."""

from __future__ import annotations

import pytest

from rota.testing import Sandbox
from tests.support.shop import Shop


@pytest.fixture
def greet(app):
    @app.task
    async def greet(name: str, times: int = 1) -> None: ...

    return greet


@pytest.fixture
def shop(sandbox: Sandbox) -> Shop:
    return Shop(sandbox.app)
