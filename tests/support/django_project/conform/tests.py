"""Django's interface for tasks, method by method."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date, datetime, timedelta
from io import StringIO
from unittest.mock import patch

from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import DatabaseError, DataError, connections, transaction
from django.test import SimpleTestCase, override_settings
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

import rota.integrations.django
from rota import Retry
from rota.errors import InvalidArguments, KeyConflict
from rota.integrations.django import models as rota_models
from rota.integrations.django.options import url_of
from rota.integrations.django.project import name_of
from rota.integrations.django.testing import RotaTestCase, RotaTransactionTestCase

from . import tasks
from .interface import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from .models import Note


class Enqueue(RotaTestCase):
    def test_the_result_of_enqueue_is_ready_and_announced(self):
        found = []

        def listen(sender, task_result, **_):
            found.append((sender, task_result))

        task_enqueued.connect(listen)
        self.addCleanup(task_enqueued.disconnect, listen)
        result = tasks.add.enqueue(2, b=3)
        self.assertEqual(found, [(type(task_backends["default"]), result)])
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertLess(len(result.id), 64)
        self.assertEqual((result.args, result.kwargs, result.backend), ([2], {"b": 3}, "default"))
        self.assertEqual((result.errors, result.worker_ids, result.attempts), ([], [], 0))
        self.assertIsNotNone(result.enqueued_at)
        self.assertIsNone(result.started_at or result.finished_at or result.last_attempted_at)
        self.assertFalse(result.is_finished)
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value

    def test_get_result_gives_the_same(self):
        result = tasks.add.enqueue(2, b=3)
        self.assertEqual(tasks.add.get_result(result.id), result)
        self.assertEqual(default_task_backend.get_result(result.id), result)

    def test_the_asynchronous_methods_do_the_same(self):
        async def all_of_them():
            result = await tasks.add.aenqueue(2)
            self.assertEqual(await tasks.add.aget_result(result.id), result)
            self.assertEqual(await default_task_backend.aget_result(result.id), result)
            await result.arefresh()
            return result

        result = async_to_sync(all_of_them)()
        self.run_due()
        result.refresh()
        self.assertEqual(result.return_value, 3)

    def test_an_unknown_id_does_not_exist(self):
        for unknown in ("01890000-0000-7000-8000-000000000000", "nonsense", ""):
            with self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(unknown)

    def test_a_result_of_another_task_is_a_mismatch(self):
        with self.assertRaises(TaskResultMismatch):
            tasks.note.get_result(tasks.add.enqueue(1).id)

    def test_the_job_is_part_of_the_transaction(self):
        try:
            with transaction.atomic():
                result = tasks.note.enqueue("never")
                tasks.note.get_result(result.id)  # its own transaction sees it
                raise InterruptedError
        except InterruptedError:
            pass
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.note.get_result(result.id)
        self.assertEqual(self.run_due(), [])

    def test_wrong_arguments_are_refused_and_harm_nothing(self):
        with self.assertRaisesMessage(InvalidArguments, "'c'"):
            tasks.add.enqueue(1, c=2)
        with self.assertRaisesMessage(InvalidArguments, "argument 'names'"):
            tasks.typed.enqueue(date(2030, 1, 1), "abc")
        with self.assertRaises(InvalidArguments):
            tasks.add.enqueue(object())
        Note.objects.create(text="the transaction is intact")
        self.assertEqual(rota_models.Job.objects.count(), 0)

    def test_arguments_arrive_by_their_annotations(self):
        result = tasks.typed.enqueue(date(2030, 1, 1), names=["a"])
        self.assertEqual((result.args, result.kwargs), (["2030-01-01"], {"names": ["a"]}))
        self.run_due(raise_errors=True)
        result.refresh()
        self.assertEqual(result.return_value, ["2030-01-01", ["a"]])

    def test_arguments_of_every_kind_arrive(self):
        result = tasks.note.enqueue("a", "b", "c", d="e")
        self.assertEqual(tasks.note.get_result(result.id), result)
        self.run_due(raise_errors=True)
        self.assertEqual(Note.objects.get().text, "a b c d=e")

    def test_a_task_waits_for_run_after(self):
        when = timezone.now() + timedelta(hours=1)
        result = tasks.add.using(run_after=when).enqueue(1)
        self.assertEqual(tasks.add.get_result(result.id), result)
        self.assertEqual(result.task.run_after, when)
        self.assertEqual(self.run_due(), [])
        self.advance(hours=1, seconds=5)
        self.assertEqual(len(self.run_due()), 1)

    def test_queue_and_priority_are_kept(self):
        result = tasks.slow.enqueue()
        stored = tasks.slow.get_result(result.id)
        self.assertEqual((stored.task.queue_name, stored.task.priority), ("slow", 10))
        first = tasks.add.using(priority=100).enqueue(1)
        tasks.add.using(priority=-100).enqueue(2)
        self.assertEqual(self.run_due()[0].id, first.id)

    def test_a_key_names_one_job(self):
        result = tasks.add.using(key="order 7").enqueue(1)
        self.assertEqual(tasks.add.using(key="order 7").enqueue(1).id, result.id)
        with self.assertRaises(KeyConflict):
            tasks.add.using(key="order 7").enqueue(2)
        self.assertEqual(len(self.run_due()), 1)
        self.assertEqual(tasks.add.using(key="order 7").enqueue(1).return_value, 2)

    def test_a_task_can_be_pickled(self):
        chosen = tasks.fail.using(priority=5)
        try:
            copy = pickle.loads(pickle.dumps(chosen))
        except pickle.PicklingError:
            self.skipTest("the backport's tasks can't be")
        self.assertEqual(copy, chosen)


class Statuses(RotaTestCase):
    def test_a_task_that_succeeds(self):
        started, finished = [], []

        def start(sender, task_result, **_):
            started.append((task_result.id, task_result.status))

        def finish(sender, task_result, **_):
            finished.append((task_result.id, task_result.status, task_result.return_value))

        task_started.connect(start)
        task_finished.connect(finish)
        self.addCleanup(task_started.disconnect, start)
        self.addCleanup(task_finished.disconnect, finish)
        result = tasks.add.enqueue(2, b=3)
        [ended] = self.run_due()
        result.refresh()
        self.assertEqual(ended, result)
        self.assertEqual(
            (result.status, result.return_value, result.attempts), ("SUCCESSFUL", 5, 1)
        )
        self.assertTrue(result.is_finished)
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(result.started_at, result.last_attempted_at)
        self.assertEqual(started, [(result.id, "RUNNING")])
        self.assertEqual(finished, [(result.id, "SUCCESSFUL", 5)])

    def test_a_task_that_fails_for_good(self):
        finished = []

        def finish(sender, task_result, **_):
            finished.append((task_result.status, task_result.errors[0].exception_class))

        task_finished.connect(finish)
        self.addCleanup(task_finished.disconnect, finish)
        result = tasks.fail.enqueue("no")
        self.run_due()
        result.refresh()
        self.assertEqual((result.status, result.attempts), ("FAILED", 3))
        self.assertEqual([each.exception_class for each in result.errors], [ValueError] * 3)
        self.assertIn("in fail", result.errors[0].traceback)
        self.assertEqual(finished, [("FAILED", ValueError)])  # once: not after each attempt
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value

    def test_a_fatal_error_is_not_repeated(self):
        result = tasks.give_up.enqueue()
        self.run_due()
        result.refresh()
        self.assertEqual((result.status, result.attempts), ("FAILED", 1))

    def test_a_task_that_succeeds_the_second_time(self):
        result = tasks.second_time.enqueue()
        self.run_due()
        result.refresh()
        self.assertEqual(
            (result.status, result.return_value, result.attempts), ("SUCCESSFUL", 2, 2)
        )
        self.assertEqual(len(result.worker_ids), 2)
        self.assertEqual([each.exception_class for each in result.errors], [OSError])
        self.assertEqual(Note.objects.count(), 2)  # at_least_once: what it wrote stays

    def test_exactly_once_undoes_what_a_failed_attempt_wrote(self):
        result = tasks.exactly.enqueue("once")
        self.run_due()
        result.refresh()
        self.assertEqual((result.attempts, result.return_value), (2, 2))
        self.assertEqual(Note.objects.count(), 2)

    def test_the_context_knows_its_result(self):
        result = tasks.about_me.enqueue("a")
        self.run_due(raise_errors=True)
        result.refresh()
        self.assertEqual(result.return_value, ["a", 1, "RUNNING", {}, ["a"]])

    def test_a_coroutine_uses_the_orm(self):
        result = tasks.anote.enqueue("a")
        self.run_due(raise_errors=True)
        result.refresh()
        self.assertEqual((result.return_value, Note.objects.get().text), ("async", "a"))

    def test_a_result_that_is_no_json_is_dropped_and_said(self):
        result = tasks.odd_result.enqueue()
        self.run_due()
        result.refresh()
        self.assertEqual((result.status, result.return_value), ("SUCCESSFUL", None))
        self.assertEqual(result.errors[0].exception_class.__name__, "ResultUnavailable")


class Refusals(SimpleTestCase):
    def refused(self, text, function, **options):
        with self.assertRaisesMessage(InvalidTask, text):
            task(**options)(function)

    def test_what_can_not_run_is_refused_when_it_is_declared(self):
        self.refused("module level", lambda: None)
        self.refused("first argument of 'context'", plain, takes_context=True)
        self.refused("priority must be a whole number", plain, priority=101)
        self.refused("Queue 'unknown' is not valid", plain, queue_name="unknown")
        self.refused("guarantee 'twice' is not one of", plain, guarantee="twice")
        self.refused("timeout must be above 0", plain, timeout=-1)
        self.refused("'ctx', which is Rota's word", with_ctx)
        self.refused("exactly_once needs a plain function", coroutine, guarantee="exactly_once")
        with self.assertRaises(TypeError):
            task(unknown=1)(plain)
        with self.assertRaisesMessage(TypeError, "belong to @task"):
            tasks.add.using(retry=Retry())

    def test_run_after_must_have_a_zone(self):
        with self.assertRaisesMessage(InvalidTask, "run_after must be an aware datetime"):
            tasks.add.using(run_after=datetime(2030, 1, 1))

    def test_unknown_options_name_themselves(self):
        bad = {"default": {"BACKEND": "rota.integrations.django.RotaBackend",
                           "OPTIONS": {"proceses": 4}}}  # fmt: skip
        with override_settings(TASKS=bad), self.assertRaisesMessage(Exception, "'proceses'"):
            task_backends["default"]

    def test_names_that_are_too_long_are_shortened_and_stay_apart(self):
        long = "package." * 20
        self.assertEqual(name_of("shop.tasks.pay"), "shop.tasks.pay")
        self.assertEqual(len(name_of(f"{long}pay")), 100)
        self.assertNotEqual(name_of(f"{long}a.pay"), name_of(f"{long}b.pay"))
        self.assertRegex(name_of("größe.tasks.pay"), r"^[0-9a-f]{10}\.gr__e\.tasks\.pay$")

    def test_databases_become_urls(self):
        self.assertEqual(
            url_of({"NAME": "my db", "USER": "me", "PASSWORD": "p@ss", "HOST": "::1", "PORT": 6432,
                    "OPTIONS": {"sslmode": "require", "pool": True}}),
            "postgresql://me:p%40ss@[::1]:6432/my%20db?sslmode=require",
        )  # fmt: skip
        self.assertEqual(
            url_of({"NAME": "a", "HOST": "/run/pg", "PORT": "5433"}),
            "postgresql:///a?host=%2Frun%2Fpg&port=5433",
        )

    def test_checks_say_what_would_keep_jobs_waiting(self):
        from . import strays

        found = [each for each in run_checks() if each.id == "rota.W003"]
        self.assertEqual(len(found), 1)
        self.assertIn("conform.strays.lost", found[0].msg)
        self.assertIsNotNone(strays.lost)

    def test_a_database_that_is_not_postgresql_is_told_once_and_not_asked(self):
        asked = patch("rota.integrations.django.checks.app_of", side_effect=AssertionError)
        with asked, patch.object(type(connections["default"]), "vendor", "sqlite"):
            found = run_checks(databases=["default"])
        told = [each.id for each in found if "TASKS['default']" in each.msg]
        self.assertEqual(told, ["rota.E001"])


def plain():
    pass


def with_ctx(ctx):
    pass


async def coroutine():
    pass


class Transactions(RotaTransactionTestCase):
    """What becomes of jobs in each kind of block, with real commits."""

    def stored(self):
        return sorted(rota_models.Job.objects.values_list("id", flat=True))

    def test_a_savepoint_that_is_rolled_back_takes_only_its_own_jobs(self):
        with transaction.atomic():
            before = tasks.note.enqueue("before")
            with self.assertRaises(InterruptedError), transaction.atomic():
                tasks.note.enqueue("inside")
                raise InterruptedError
            point = getattr(transaction, "savepoint_create", transaction.savepoint)()
            tasks.note.enqueue("by hand")
            transaction.savepoint_rollback(point)
            after = tasks.note.enqueue("after")
        self.assertEqual([str(id) for id in self.stored()], sorted([before.id, after.id]))

    def test_on_commit_sees_the_job_and_its_own_job_is_stored(self):
        seen = []

        def committed():
            seen.append([str(id) for id in self.stored()])
            seen.append(tasks.note.enqueue("later").id)

        with transaction.atomic():
            transaction.on_commit(committed)
            first = tasks.note.enqueue("first")
            self.assertEqual(seen, [])
        self.assertEqual(seen[0], [first.id])
        self.assertEqual([str(id) for id in self.stored()], sorted([first.id, seen[1]]))

    def test_a_block_that_is_marked_for_rollback_stores_nothing(self):
        with transaction.atomic():
            tasks.note.enqueue("never")
            transaction.set_rollback(True)
        self.assertEqual(self.stored(), [])

    def test_a_block_that_has_failed_refuses_and_the_next_works(self):
        with self.assertRaises(DatabaseError), transaction.atomic():
            with suppress(DataError), connections["default"].cursor() as cursor:
                cursor.execute("select 1 / 0")
            tasks.note.enqueue("never")
        kept = tasks.note.enqueue("kept")
        self.assertEqual([str(id) for id in self.stored()], [kept.id])

    def test_a_conflict_inside_a_block_leaves_the_block_usable(self):
        tasks.note.using(key="one").enqueue("first")
        with transaction.atomic():
            Note.objects.create(text="mine")
            with self.assertRaises(KeyConflict):
                tasks.note.using(key="one").enqueue("second")
            Note.objects.create(text="goes on")
        self.assertEqual(Note.objects.count(), 2)

    def test_without_autocommit_the_job_waits_for_the_commit(self):
        transaction.set_autocommit(False)
        try:
            tasks.note.enqueue("never")
            transaction.rollback()
            self.assertEqual(self.stored(), [])
            kept = tasks.note.enqueue("kept")
            transaction.commit()
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        self.assertEqual([str(id) for id in self.stored()], [kept.id])

    def test_a_view_under_atomic_requests_is_one_transaction(self):
        connection = connections["default"]
        with self.settings(ROOT_URLCONF="conform.atomic_urls"):
            connection.settings_dict["ATOMIC_REQUESTS"] = True
            try:
                self.client.raise_request_exception = False
                self.assertEqual(self.client.get("/fails").status_code, 500)
                self.assertEqual((self.stored(), Note.objects.count()), ([], 0))
                self.assertEqual(self.client.get("/works").status_code, 200)
            finally:
                connection.settings_dict["ATOMIC_REQUESTS"] = False
        self.assertEqual((len(self.stored()), Note.objects.count()), (1, 1))

    def test_threads_have_connections_of_their_own(self):
        def enqueue(number):
            try:
                with transaction.atomic():
                    return tasks.add.enqueue(number).id
            finally:
                connections.close_all()

        with ThreadPoolExecutor(8) as threads:
            ids = list(threads.map(enqueue, range(32)))
        self.assertEqual([str(id) for id in self.stored()], sorted(ids))

    def test_what_templates_render_is_a_text(self):
        result = tasks.note.enqueue(format_html("<b>{}</b>", "<x>"), mark_safe("<i>"))
        self.run_due(raise_errors=True)
        self.assertEqual(Note.objects.get().text, "<b>&lt;x&gt;</b> <i>")
        self.assertEqual(result.args, ["<b>&lt;x&gt;</b>", "<i>"])

    def test_what_is_no_json_is_named(self):
        with self.assertRaisesMessage(InvalidArguments, "argument 'text': objects of type conform"):
            tasks.note.enqueue(Note(text="a model"))
        with self.assertRaisesMessage(InvalidArguments, "argument 'text'"):
            tasks.note.enqueue(gettext_lazy("a lazy text"))


class OtherDatabase(RotaTestCase):
    databases = {"default", "other"}
    rota_backend = "reports"

    def test_a_backend_stores_in_its_own_database(self):
        chosen = tasks.add.using(backend="reports")
        try:
            with transaction.atomic(using="default"):
                kept = chosen.enqueue(1)  # not part of this transaction
                raise InterruptedError
        except InterruptedError:
            pass
        try:
            with transaction.atomic(using="other"):
                gone = chosen.enqueue(2)
                raise InterruptedError
        except InterruptedError:
            pass
        self.assertEqual(chosen.get_result(kept.id), kept)
        with self.assertRaises(TaskResultDoesNotExist):
            chosen.get_result(gone.id)
        [result] = self.run_due()
        self.assertEqual((result.id, result.backend, result.return_value), (kept.id, "reports", 2))
        self.assertEqual(rota_models.Job.objects.count(), 0)  # those of the default backend


class Eager(RotaTestCase):
    def test_the_immediate_backend_runs_tasks_at_once(self):
        self.assertEqual(tasks.add.using(backend="now").enqueue(1).return_value, 2)


class ReadingAndSteering(RotaTransactionTestCase):
    """With jobs that are committed: other connections see them."""

    def test_a_cancelled_job_has_failed(self):
        result = tasks.add.enqueue(1)
        app = rota.integrations.django.app
        with connections["default"].cursor():
            async_to_sync(self.cancelled)(app, result.id)
        result.refresh()
        self.assertEqual((result.status, len(result.errors)), ("FAILED", 1))
        self.assertEqual(result.errors[0].exception_class.__name__, "JobStopped")
        self.assertEqual(self.run_due(), [])

    async def cancelled(self, app, id):
        await app.jobs.cancel(id)
        await app.close()

    def test_models_are_read_only(self):
        tasks.add.enqueue(1)
        job = rota_models.Job.objects.get()
        self.assertEqual((job.queue, job.get_state_display()), ("default", "ready"))
        for change in (job.save, job.delete):
            with self.assertRaisesMessage(TypeError, "read-only"):
                change()

    def test_the_admin_shows_filters_explains_retries_and_cancels(self):
        User.objects.create_superuser("ada", password="x")
        self.client.login(username="ada", password="x")
        failed, waiting = tasks.give_up.enqueue(), tasks.add.using(delay=3600).enqueue(1)
        self.run_due()
        listed = self.client.get("/admin/rota/job/").content.decode()
        self.assertIn(failed.id, listed)
        self.assertIn(waiting.id, listed)
        for query in ("state__exact=6", "task=conform.tasks.give_up", f"q={failed.id}"):
            listed = self.client.get(f"/admin/rota/job/?{query}").content.decode()
            self.assertIn(failed.id, listed, query)
            self.assertNotIn(waiting.id, listed, query)
        self.assertIn(failed.id, self.client.get("/admin/rota/job/?queue=default").content.decode())
        page = self.client.get(f"/admin/rota/job/{failed.id}/change/").content.decode()
        self.assertIn("never again", page)
        self.assertIn("field-explanation", page)
        self.act("job", "retry", failed.id)
        self.act("job", "cancel", waiting.id)
        failed.refresh()
        waiting.refresh()
        self.assertEqual((failed.status, waiting.status), ("READY", "FAILED"))
        again = self.act("job", "cancel", waiting.id)
        self.assertIn("cancelled", again)  # why it can't be
        for page in ("schedule", "node"):
            self.assertEqual(self.client.get(f"/admin/rota/{page}/").status_code, 200)

    def act(self, page, action, id):
        answer = self.client.post(
            f"/admin/rota/{page}/", {"action": action, "_selected_action": [id]}, follow=True
        )
        self.assertEqual(answer.status_code, 200)
        return answer.content.decode()

    def test_who_may_only_look_changes_nothing(self):
        viewer = User.objects.create_user("bob", password="x", is_staff=True)
        viewer.user_permissions.add(Permission.objects.get(codename="view_job"))
        self.client.login(username="bob", password="x")
        result = tasks.add.enqueue(1)
        self.assertIn(result.id, self.client.get("/admin/rota/job/").content.decode())
        self.act("job", "cancel", result.id)
        result.refresh()
        self.assertEqual(result.status, "READY")
        self.assertEqual(self.client.get("/admin/rota/job/add/").status_code, 403)

    def test_the_command_line_uses_the_project_s_database(self):
        call_command("rota", "migrate", stdout=StringIO())
        call_command("rota", "migrate", "--backend", "reports", stdout=StringIO())
