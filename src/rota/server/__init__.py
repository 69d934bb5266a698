"""The server: Rota over HTTP.

How to add a route. Write a handler in ``api/<noun>.py``, and put it into that module's ``ROUTES``::

    @get("/v1/jobs/{job_id:uuid}", policy=VIEWER, summary="One job")
    async def get_job(tenant: TenantDep, job_id: FromPath[UUID]) -> Job:
        return await tenant.jobs.get(job_id)

and list the module in ``routes.NOUNS``. Then:

- ``policy`` is not optional: PUBLIC, VIEWER, OPERATOR, ADMIN, WORKER or EVERYWHERE (see `policy`). The
  server doesn't start with a route that has none. Who comes without a token gets 401, with too small a
  role 403, before anything of the body is read. Tests of both are made from the route table.
- Arguments say where they come from (`given`, and Litestar's ``FromPath[...]``, ``FromQuery[...]``,
  ``FromHeader[...]``, ``JSONBody[...]``); Litestar warns of one that doesn't, and warnings fail tests.
- ``tenant`` is the app as the request's namespace sees it: whatever `rota.App` can do, in that
  namespace and under row security. Never build a query on a namespace of your own.
- ``principal`` says who asks; ``request`` is a `RotaRequest`.
- Errors: let Rota's own errors rise, or raise `Problem`; see `problems`. Never a bare HTTPException.
- Bodies: a msgspec struct as ``data``. Size, depth, NUL and encoding were checked before. A route that
  reads a stream of its own sets ``request_max_body_size=None`` and uses ``request.stream()``.
- Submits: ``await quotas.admit(principal.namespace, jobs, payload_bytes)`` first.
- Changes (whatever isn't GET) are recorded in the transaction that makes them. The app's verbs do it
  themselves; what changes the server's own tables says ``async with request.changing("revoke", "token
  ab12") as change:`` around it. See `rota.store.changes`. What is its own record, such as the submit of
  a job, says ``policy=OPERATOR.unaudited``.
- Lists: `api.pages`.
- A long answer (SSE): watch ``context.stopping``, and set ``uncompressed=True`` on the route.
"""
