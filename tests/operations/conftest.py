"""Tasks that the tests of several operations declare."""

from __future__ import annotations

import pytest


@pytest.fixture
def greet(app):
    @app.task
    async def greet(name: str, times: int = 1) -> None: ...

    return greet
