"""The tests of the shop: jobs are in memory, and their handlers run in this process."""

import json
import unittest
from datetime import timedelta
from importlib.util import find_spec

from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError, SystemCheckError
from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone

from onceward.integrations.django import jobs
from shop.handlers import Payment, pay
from shop.models import Order

MEMORY = {"DATABASE": "memory://", "WORK": True}


@override_settings(ONCEWARD=MEMORY)
class Orders(TransactionTestCase):
    """With real commits."""

    def tearDown(self):
        jobs.reset()

    def test_an_order_is_paid_once(self):
        for _ in range(3):
            answer = self.client.put("/orders/7?item=lamp")
            self.assertEqual(answer.status_code, 202)
        self.assertEqual(Order.objects.count(), 1)
        receipt = pay.enqueue(Payment("7", "lamp"), key="order 7")
        self.assertTrue(receipt.duplicate)
        self.assertEqual(pay.result(receipt.id), "paid lamp")
        answer = self.client.get("/orders/7")
        self.assertEqual(json.loads(answer.content)["receipt"], "paid lamp")

    def test_an_order_that_is_rolled_back_is_not_paid(self):
        def order():
            with transaction.atomic():
                jobs.send_on_commit("payments", {"number": "8", "item": "rug"}, key="order 8")
                raise KeyError

        self.assertRaises(KeyError, order)
        self.assertEqual(jobs.app.queues.jobs().jobs, [])
        self.assertFalse(pay.enqueue(Payment("8", "rug"), key="order 8").duplicate)


@override_settings(ONCEWARD=MEMORY)
class Admin(TestCase):
    """The page of jobs."""

    def setUp(self):
        failed = pay.enqueue(Payment("1", "nothing"), key="order 1")
        done = pay.enqueue(Payment("2", "lamp"), key="order 2")
        jobs.app.wait(failed.id)
        jobs.app.wait(done.id)
        self.failed = failed.id

    def tearDown(self):
        jobs.reset()

    def sign_in(self, *permissions):
        user = User.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        self.client.force_login(user)

    def test_staff_without_a_permission_sees_nothing(self):
        self.sign_in()
        self.assertEqual(self.client.get("/admin/onceward/job/").status_code, 403)

    def test_jobs_are_listed_and_filtered(self):
        self.sign_in("view_job")
        page = self.client.get("/admin/onceward/job/")
        for words in ("order 1", "order 2", "failed", "succeeded", "nothing to pay for"):
            self.assertContains(page, words)
        page = self.client.get("/admin/onceward/job/?state=succeeded")
        self.assertContains(page, "order 2")
        self.assertNotContains(page, "order 1")
        self.assertContains(self.client.get("/admin/onceward/job/?text=order 3"), "No jobs.")
        wrong = self.client.get("/admin/onceward/job/?state=odd")
        self.assertContains(wrong, "does not select jobs")

    def test_a_retry_needs_a_permission(self):
        self.sign_in("view_job")
        self.assertNotContains(self.client.get("/admin/onceward/job/"), "Retry job")
        answer = self.client.post("/admin/onceward/job/", {"retry": self.failed})
        self.assertEqual(answer.status_code, 403)

    def test_a_failed_job_is_retried(self):
        self.sign_in("view_job", "change_job")
        self.assertContains(self.client.get("/admin/onceward/job/"), "Retry job", 1)
        answer = self.client.post("/admin/onceward/job/", {"retry": self.failed}, follow=True)
        self.assertContains(answer, f"Job {self.failed} is retried.")
        answer = self.client.post("/admin/onceward/job/", {"retry": "0" * 26}, follow=True)
        self.assertContains(answer, "is not a job id")


class Settings(TestCase):
    """Wrong settings are found by `manage.py check`."""

    def tearDown(self):
        jobs.reset()

    def test_wrong_settings_are_named(self):
        for wrong, why in (
            (None, "set ONCEWARD ="),
            ({}, "set either DATABASE"),
            ({"DATABASE": "mysql://x"}, "unsupported database URL"),
            ({"DATABASE": "memory://", "WORK": "no"}, "WORK must be True or False, not 'no'"),
            ({"DATABASE": "memory://", "WORKERS": 3}, "unknown setting 'WORKERS'"),
        ):
            with self.subTest(wrong), override_settings(ONCEWARD=wrong):
                self.assertRaisesMessage(SystemCheckError, why, call_command, "check")
                self.assertRaisesMessage(ImproperlyConfigured, why, jobs.send, "q", 1)

    def test_a_database_that_cannot_be_opened_is_reported(self):
        with override_settings(ONCEWARD={"DATABASE": "sqlite:////nowhere/app.db"}):
            self.assertRaisesMessage(
                CommandError, "/nowhere does not exist", call_command, "onceward_work"
            )

    def test_handlers_need_a_database(self):
        with override_settings(ONCEWARD={"SERVER": "http://127.0.0.1:9"}):
            self.assertRaisesMessage(CommandError, "handlers need", call_command, "onceward_work")


@unittest.skipUnless(find_spec("django.tasks"), "django.tasks needs Django 6")
@override_settings(ONCEWARD=MEMORY)
class Tasks(TestCase):
    """Tasks of Django are jobs."""

    def tearDown(self):
        jobs.reset()

    def ended(self, result):
        jobs.app.wait(result.id)
        result.refresh()
        return result

    def test_a_task_runs_and_returns(self):
        from shop.reports import attempt, later, total

        result = self.ended(total.enqueue([1, 2, 3]))
        self.assertEqual((result.status, result.return_value), ("SUCCESSFUL", 6))
        self.assertEqual(total.get_result(result.id).args, [[1, 2, 3]])
        self.assertEqual(self.ended(attempt.enqueue()).return_value, 1)
        self.assertEqual(self.ended(later.enqueue("ann")).return_value, "hello ann")

    def test_a_task_that_raises_is_retried_and_fails(self):
        from shop.reports import broken

        result = self.ended(broken.enqueue())
        self.assertEqual((result.status, result.attempts), ("FAILED", 2))
        self.assertIn("no report", result.errors[0].traceback)
        self.assertTrue(issubclass(result.errors[0].exception_class, Exception))

    def test_a_task_can_be_deferred_and_has_a_priority(self):
        from shop.reports import total

        after = timezone.now() + timedelta(hours=1)
        result = total.using(run_after=after, priority=100).enqueue([1])
        self.assertEqual(result.status, "READY")
        job = jobs.app.job(result.id)
        self.assertEqual((job.queue, job.options.priority), ("reports", 0))
        self.assertEqual(job.due_ms, int(after.timestamp() * 1000))

    def test_what_is_no_task_is_refused(self):
        from django.tasks import default_task_backend
        from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist

        from shop.reports import total

        other = pay.enqueue(Payment("1", "lamp"))
        for id_ in ("0" * 26, "odd", other.id):
            self.assertRaises(TaskResultDoesNotExist, default_task_backend.get_result, id_)
        self.assertRaises(InvalidTask, total.using, queue_name="unknown")
