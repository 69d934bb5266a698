"""The pages of triggers: messages that start jobs, how far they were read, and what became of them."""

from __future__ import annotations

from typing import Annotated

from litestar.params import PathParameter

from rota.core.administration import TriggerStatus
from rota.server.dashboard import pages
from rota.server.dashboard.forms import Fields
from rota.server.policy import ADMIN, OPERATOR, VIEWER
from rota.server.requests import RotaRequest, TenantDep

_MOST_POSITION = 20_000
TriggerName = Annotated[str, PathParameter(max_length=100)]


@pages.page("/triggers", policy=VIEWER)
async def show_triggers(request: RotaRequest, tenant: TenantDep) -> pages.Html:
    return await pages.show(
        request, "triggers.html", triggers=await tenant.triggers.list(), how=[
            pages.Copyable("List the triggers", cli=pages.cli("triggers", "list"),
                           curl=pages.curl("GET", "/v1/triggers"),
                           python="await app.triggers.list()"),
        ],
    )  # fmt: skip


@pages.page("/triggers/{name:str}", policy=VIEWER)
async def show_trigger(request: RotaRequest, tenant: TenantDep, name: TriggerName) -> pages.Html:
    trigger = await tenant.triggers.get(name)
    return await pages.show(
        request, "trigger.html", trigger=trigger, may_remove=request.principal.holds("triggers:manage"),
        how=_how(trigger),
    )  # fmt: skip


def _how(trigger: TriggerStatus) -> list[pages.Copyable]:
    verbs = ["resume" if trigger.paused_at else "pause", "rewind"]
    return [
        pages.Copyable(
            "Show this trigger", cli=pages.cli("triggers", "show", trigger.name),
            curl=pages.curl("GET", f"/v1/triggers/{trigger.name}"),
            python=f"await app.triggers.get({trigger.name!r})",
        ),
        *(
            pages.Copyable(
                f"{verb.capitalize()} this trigger", cli=pages.cli("triggers", verb, trigger.name),
                curl=pages.curl("POST", f"/v1/triggers/{trigger.name}/{verb}",
                                {} if verb == "rewind" else None),
                python=f"await app.triggers.{verb}({trigger.name!r})",
            )
            for verb in verbs
        ),
    ]  # fmt: skip


@pages.action("/triggers/{name:str}/pause", policy=OPERATOR)
async def pause_trigger(request: RotaRequest, tenant: TenantDep, name: TriggerName) -> pages.Back:
    await tenant.triggers.pause(name)
    return pages.back(request, f"/triggers/{name}", f"Trigger {name} paused. Its messages wait.")


@pages.action("/triggers/{name:str}/resume", policy=OPERATOR)
async def resume_trigger(request: RotaRequest, tenant: TenantDep, name: TriggerName) -> pages.Back:
    await tenant.triggers.resume(name)
    return pages.back(request, f"/triggers/{name}", f"Trigger {name} goes on where it was paused.")


@pages.action(
    "/triggers/{name:str}/rewind", policy=OPERATOR, on_error="/triggers/{name}"
)  # fmt: skip
async def rewind_trigger(
    request: RotaRequest, tenant: TenantDep, name: TriggerName
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, set the trigger back."""
    fields = await Fields.of(request)
    position = (fields.text("position") or "")[:_MOST_POSITION] or None
    if not fields.flag("sure"):
        trigger = await tenant.triggers.get(name)
        where = f"after the position {position}" if position else "from the beginning of the stream"
        return await pages.confirm(
            request, f"Read {trigger.source} again {where}?",
            f"Messages that became jobs of {trigger.task} before become jobs once more. Now it is at "
            f"{trigger.position or 'the beginning'}.",
            path=f"/triggers/{name}/rewind", word="Rewind the trigger",
            target=pages.Here(request).url(f"/triggers/{name}"),
            fields=[("position", position or "")],
        )  # fmt: skip
    await tenant.triggers.rewind(name, position)
    return pages.back(request, f"/triggers/{name}", f"Trigger {name} was set back.")


@pages.action("/triggers/{name:str}/remove", policy=ADMIN)
async def remove_trigger(
    request: RotaRequest, tenant: TenantDep, name: TriggerName
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, forget the trigger."""
    if not (await Fields.of(request)).flag("sure"):
        trigger = await tenant.triggers.get(name)
        return await pages.confirm(
            request, f"Remove trigger {name}?", trigger.source,
            "Its position is forgotten. While code declares it, it is made anew, and begins as the code "
            "says. This can't be undone.",
            path=f"/triggers/{name}/remove", word="Remove the trigger",
            target=pages.Here(request).url(f"/triggers/{name}"),
        )  # fmt: skip
    await tenant.triggers.remove(name)
    return pages.back(request, "/triggers", f"Trigger {name} removed.")


ROUTES = [
    show_triggers, show_trigger, pause_trigger, resume_trigger, rewind_trigger, remove_trigger,
]  # fmt: skip
