"""Tasks that are HTTP endpoints: `app.endpoint`, `app.endpoints`, and how receivers check pushes."""

from rota.endpoints.definition import Endpoint
from rota.endpoints.noun import Endpoints, EndpointStatus, NewEndpoint
from rota.endpoints.push import EndpointFailed, EndpointTask
from rota.net.signing import Push, verify_push

__all__ = [
    "Endpoint",
    "EndpointFailed",
    "EndpointStatus",
    "EndpointTask",
    "Endpoints",
    "NewEndpoint",
    "Push",
    "verify_push",
]
