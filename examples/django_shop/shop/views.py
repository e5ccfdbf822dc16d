"""The pages of the shop."""

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from onceward.integrations.django import jobs
from shop.models import Order


@csrf_exempt
def order(request: HttpRequest, number: str) -> HttpResponse:
    """Store an order, and pay for it when it is committed."""
    if request.method == "GET":
        receipt = jobs.app.run(lambda tx: tx.get(("receipts", number)))
        return JsonResponse({"order": number, "receipt": receipt})
    with transaction.atomic():
        found, _ = Order.objects.get_or_create(
            number=number, defaults={"item": request.GET["item"]}
        )
        body = {"number": number, "item": found.item}
        jobs.send_on_commit("payments", body, key=f"order {number}")
    return JsonResponse({"order": number, "item": found.item}, status=202)
