"""Events to other programs: `app.webhooks`, the deliveries, and how receivers check what they get."""

from rota.net.signing import SIGNATURE_HEADER, sign, verify
from rota.webhooks.delivery import WEBHOOK_TASK, enable_webhooks
from rota.webhooks.noun import Webhooks

__all__ = [
    "SIGNATURE_HEADER",
    "WEBHOOK_TASK",
    "Webhooks",
    "enable_webhooks",
    "sign",
    "verify",
]
