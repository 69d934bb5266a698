"""docs/guide/limit-recipes.md: each recipe declares what it says, and its jobs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rota.testing import isolated

PAGE = Path(__file__).parents[1] / "docs/guide/limit-recipes.md"
SUBMITS: dict[str, tuple[Any, ...]] = {
    "import_orders": ("acme",),
    "call_partner": (1,),
    "refund": ("p1",),
    "render_film": (1,),
    "render_icon": (1,),
    "train": ("m7",),
    "reindex": (3,),
    "book": ("a1", 5),
    "nightly": (1,),
    "make_report": ("acme",),
    "store": ("row",),
}


@pytest.mark.filterwarnings("ignore")
async def test_every_recipe_runs(database_url: str) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    names: dict[str, Any] = {"__name__": "recipes"}
    exec(compile(code, str(PAGE), "exec"), names)
    app = names["app"]
    assert set(app.tasks) == set(SUBMITS)
    settings = app.settings.replace(database_url=database_url)
    async with app.using(settings), isolated(app) as sandbox:
        handles = {
            name: await sandbox.app.tasks[name].submit(*given) for name, given in SUBMITS.items()
        }
        await sandbox.advance(seconds=10)
        await sandbox.run_due()
        states = {name: (await handle.wait(5)).state for name, handle in handles.items()}
    assert set(states.values()) == {"succeeded"}
