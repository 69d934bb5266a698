"""The shop's own tests: `manage.py test`."""

import json
from decimal import Decimal

from django.core import mail

from rota.integrations.django.testing import RotaTestCase

from .models import Booking, Order
from .tasks import report, thank


class OrderTests(RotaTestCase):
    def post(self, **order):
        return self.client.post("/orders/", json.dumps(order), content_type="application/json")

    def test_an_order_is_confirmed_booked_once_and_thanked_for(self):
        answer = self.post(item="teapot", quantity=2)
        self.assertEqual(answer.status_code, 201)
        confirmed, thanked = self.run_due(raise_errors=True)
        self.assertEqual(confirmed.return_value, "2 teapot")
        self.assertEqual(thanked.status, "SUCCESSFUL")
        self.assertEqual(Booking.objects.get().amount, Decimal("19.80"))
        self.assertEqual(len(mail.outbox), 1)

    def test_an_order_that_is_rolled_back_has_no_job(self):
        self.assertEqual(self.post(item="teapot", quantity=101).status_code, 409)
        self.assertEqual(self.run_due(), [])
        self.assertEqual(Order.objects.count(), 0)

    def test_a_mail_is_tried_again_later(self):
        result = thank.enqueue(4711)  # no such order
        self.assertEqual(self.run_due(), [])
        result.refresh()
        self.assertEqual((result.status, result.attempts), ("READY", 1))
        self.advance(minutes=10)
        for _ in range(4):
            self.run_due()
            self.advance(hours=1)
        result.refresh()
        self.assertEqual((result.status, result.attempts), ("FAILED", 5))
        self.assertEqual(result.errors[0].exception_class_path, "shop.models.Order.DoesNotExist")

    def test_the_report_takes_a_context(self):
        result = report.enqueue(since="monday")
        self.run_due(raise_errors=True)
        result.refresh()
        self.assertEqual(result.return_value, {"orders": 0, "since": "monday", "attempt": 1})
