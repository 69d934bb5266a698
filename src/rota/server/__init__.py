"""The server: Rota over HTTP.

To add a route, write a handler in ``api/<noun>.py``, and add it to ``ROUTES`` of that module::

    @get("/v1/jobs/{job_id:uuid}", policy=VIEWER, summary="Get a job")
    async def get_job(tenant: TenantDep, job_id: FromPath[UUID]) -> Job:
        return await tenant.jobs.get(job_id)

A new module is added to `routes`. Then:

- ``policy`` is required: PUBLIC, VIEWER, OPERATOR, ADMIN, WORKER or EVERYWHERE (see `policy`). The
  server doesn't start with a route that has none. A request without a token is answered with 401, one
  with too small a role with 403, before its body is read. Tests of both are made from the route table.
- Arguments declare their source, by the dependencies of `requests` and Litestar's ``FromPath[...]``,
  ``FromQuery[...]``, ``FromHeader[...]``, ``JSONBody[...]``; Litestar warns of an argument that doesn't,
  and warnings fail tests.
- ``tenant`` is the `Rota` of the request's namespace: all its operations, restricted by row security.
  Never run a query with a namespace of your own.
- ``principal`` is the sender; ``request`` is a `RotaRequest`.
- Errors: let Rota's errors propagate, or raise `Problem`; see `problems`. Never raise HTTPException.
- Bodies: a msgspec struct as ``data``. Size, depth, NUL and encoding were checked before. A route that
  reads a stream sets ``request_max_body_size=None`` and uses ``request.stream()``.
- Changes are made by operations (`rota.operations`), which record them in the transaction that makes
  them. A test has an example of each route that changes something.
- Lists: `api.pages`.
- Streams: `api.streams`; set ``uncompressed=True`` on the route.
"""
