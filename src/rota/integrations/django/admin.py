"""The admin: jobs, schedules and nodes to look at; retry, cancel, pause and explain as actions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import msgspec
from django.contrib import admin, messages
from django.core.paginator import Paginator

from rota.core.explain import Explanation
from rota.errors import RotaError
from rota.integrations.django.models import Job, Node, Schedule
from rota.integrations.django.project import app_of, tasks_by_name
from rota.lib.sync_bridge import sync_bridge
from rota.store.changes import Actor, acting_as

_COUNTED = 10_000  # more rows than these are not counted


class BoundedPaginator(Paginator):  # type: ignore[misc]
    """Counts so many rows and no more: a table of millions must not be read for a page of it."""

    @functools.cached_property
    def count(self) -> int:
        return int(self.object_list[:_COUNTED].count())


class TaskFilter(admin.SimpleListFilter):  # type: ignore[misc]
    title = "task"
    parameter_name = "task"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted({*tasks_by_name, *app_of().tasks})]

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(task=self.value()) if self.value() else queryset


class QueueFilter(admin.SimpleListFilter):  # type: ignore[misc]
    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        found = sync_bridge.call(app_of().queues.list, "list")
        return [(queue.name, queue.name) for queue in found]

    def queryset(self, request: Any, queryset: Any) -> Any:
        if not self.value():
            return queryset
        lane = f"{app_of().settings.namespace}/{self.value()}"
        return queryset.filter(lane=lane) | queryset.filter(lane__startswith=f"{lane}+")


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """A page without a form: what changes something is an action."""

    paginator = BoundedPaginator
    show_full_result_count = False
    operate: str | None = None  # the permission of its actions

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_operate_permission(self, request: Any) -> bool:
        return self.operate is not None and bool(request.user.has_perm(self.operate))

    def act(
        self, request: Any, queryset: Any, done: str,
        verb: Callable[[Any], Callable[[], Coroutine[Any, Any, Any]]],
    ) -> None:  # fmt: skip
        """Do something with each row that was chosen, as the user who asks for it."""
        actor = Actor(name=request.user.get_username(), via="django admin", interface="python")
        count = 0
        for row in queryset:
            try:
                sync_bridge.call(_as(actor, verb(row)), "act")
                count += 1
            except RotaError as error:
                self.message_user(request, str(error), messages.ERROR)
        if count:
            self.message_user(request, f"{count} {done}", messages.SUCCESS)


def _as(actor: Actor, verb: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Name the actor in the loop that acts: it runs in a thread with a context of its own."""

    async def act() -> Any:
        with acting_as(actor):
            return await verb()

    return act


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    operate = "rota.operate_job"
    list_display = ("id", "task", "state", "queue", "attempt", "created_at", "finished_at")
    list_filter = ("state", TaskFilter, QueueFilter)
    search_fields = ("=id", "=key")
    search_help_text = "The id or the key of a job"
    actions = ("retry", "cancel")
    fields = (
        "id", "task", "state", "queue", "explanation", "attempt", "max_attempts", "priority", "due_at",
        "created_at", "started_at", "finished_at", "key", "shown_payload", "shown_result",
        "shown_error", "shown_attempts",
    )  # fmt: skip
    readonly_fields = fields

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).defer("payload", "result", "attempts", "headers")

    def get_search_results(self, request: Any, queryset: Any, term: str) -> tuple[Any, bool]:
        if not term:
            return queryset, False
        try:
            return queryset.filter(id=UUID(term)), False
        except ValueError:
            return queryset.filter(key=term), False

    @admin.action(description="Retry failed jobs", permissions=["operate"])
    def retry(self, request: Any, queryset: Any) -> None:
        jobs = app_of().jobs
        self.act(request, queryset, "retried", lambda row: lambda: jobs.retry(row.id))

    @admin.action(description="Cancel jobs", permissions=["operate"])
    def cancel(self, request: Any, queryset: Any) -> None:
        jobs = app_of().jobs
        self.act(request, queryset, "cancelled", lambda row: lambda: jobs.cancel(row.id))

    @admin.display(description="why")
    def explanation(self, job: Job) -> str:
        try:
            found: Explanation = sync_bridge.call(lambda: app_of().jobs.explain(job.id), "explain")
        except RotaError as error:
            return str(error)
        return found.sentence

    @admin.display(description="payload")
    def shown_payload(self, job: Job) -> str:
        return _pretty(job.payload)

    @admin.display(description="result")
    def shown_result(self, job: Job) -> str:
        return _pretty(job.result)

    @admin.display(description="error")
    def shown_error(self, job: Job) -> str:
        return _pretty(job.error)

    @admin.display(description="attempts")
    def shown_attempts(self, job: Job) -> str:
        return _pretty(job.attempts)


def _pretty(text: Any) -> str:
    if not text:
        return "-"
    return msgspec.json.format(str(text).encode(), indent=2).decode()


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    operate = "rota.operate_schedule"
    list_display = ("name", "task", "next_due", "paused_at", "fired", "source")
    search_fields = ("name", "task")
    actions = ("pause", "resume", "trigger")
    fields = (
        "name",
        "task",
        "next_due",
        "paused_at",
        "fired",
        "source",
        "updated_at",
        "shown_spec",
    )
    readonly_fields = fields

    @admin.action(description="Pause schedules", permissions=["operate"])
    def pause(self, request: Any, queryset: Any) -> None:
        verbs = app_of().schedules
        self.act(request, queryset, "paused", lambda row: lambda: verbs.pause(row.name))

    @admin.action(description="Resume schedules", permissions=["operate"])
    def resume(self, request: Any, queryset: Any) -> None:
        verbs = app_of().schedules
        self.act(request, queryset, "resumed", lambda row: lambda: verbs.resume(row.name))

    @admin.action(description="Run now", permissions=["operate"])
    def trigger(self, request: Any, queryset: Any) -> None:
        verbs = app_of().schedules
        self.act(request, queryset, "triggered", lambda row: lambda: verbs.trigger(row.name))

    @admin.display(description="definition")
    def shown_spec(self, schedule: Schedule) -> str:
        return _pretty(schedule.spec)


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    list_display = ("name", "state", "version", "started_at", "heartbeat_at", "slots", "running")
    list_filter = ("state",)
    fields = list_display
    readonly_fields = fields
