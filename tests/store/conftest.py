"""A task to claim, and a node that claims without running anything."""

from __future__ import annotations

import pytest

from tests.support.fake_node import FakeNode


@pytest.fixture
def node(hot, sandbox):
    return FakeNode(hot, sandbox.app.settings)


@pytest.fixture
def greet(app):
    @app.task
    async def greet(name: str = "Ada") -> str:
        return f"hello {name}"

    return greet
