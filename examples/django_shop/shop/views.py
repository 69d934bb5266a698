"""The views of the shop."""

import json

from django.db import transaction
from django.http import Http404, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from .models import Booking, Order
from .tasks import confirm

IN_STOCK = 100


@csrf_exempt
def orders(request):
    """Create an order and the job that confirms it: both, or neither."""
    if request.method == "GET":
        return JsonResponse({"orders": Order.objects.count(), "bookings": Booking.objects.count()})
    wanted = json.loads(request.body)
    try:
        with transaction.atomic():
            order = Order.objects.create(item=wanted["item"], quantity=wanted["quantity"])
            job = confirm.enqueue(order.pk)
            if order.quantity > IN_STOCK:  # noticed late, as such things are
                raise ValueError("not so many in stock")
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=409)
    return JsonResponse({"order": order.pk, "job": job.id}, status=201)


def job(request, id):
    """Tell how far a job is."""
    try:
        result = confirm.get_result(id)
    except Exception as error:
        raise Http404 from error
    value = result.return_value if result.status == "SUCCESSFUL" else None
    return JsonResponse({"status": result.status, "attempts": result.attempts, "value": value})
