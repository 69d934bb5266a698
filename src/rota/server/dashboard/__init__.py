"""The dashboard: pages that show what Rota does, and forms that change it.

Its pages are routes of the server like all others, each with a policy. They read behind row security,
and change things by calling the same operations (`rota.operations`) as the HTTP API, so that checks,
results and audit rows are the same.

How to add a page.

1. A handler in a module named after the noun, decorated with `page` (GET) or `action` (POST, a form),
   and listed in that module's ``ROUTES``; the module in `routes.PAGES`. ::

       @page("/queues", policy=VIEWER)
       async def queues(request: RotaRequest, tenant: TenantDep) -> Html:
           return await show(request, "queues.html", queues=await tenant.queues.list())

       @action("/queues/{name:str}/pause", policy=OPERATOR)
       async def pause(request: RotaRequest, tenant: TenantDep, name: QueueName) -> Back:
           await tenant.queues.pause(name, must_exist=True)
           return back(request, "/queues", f"Queue {name} paused.")

   The noun of the address is the scope that a limited token needs, and tests of the gate are made from
   the route table: a new kind of parameter is told to tests/server/test_gate.py and
   tests/server/api/test_tenants.py.
2. A template that extends ``frame.html`` and fills ``content``. What `pages.show` gives to each is said
   there; words for moments, durations and numbers are in `words`, small pieces (state, form, copy) in
   ``parts.html``. Whatever changes while one looks is in an element with an id and ``data-live``: when
   something happened, the page is asked for again in the background and these elements are replaced.
   Rows of a table with ``data-live="rows"`` and ids are replaced one by one, so that nobody loses their
   place.
3. What a person can do there, a `commands.Copyable` says how to do elsewhere.
4. Reads: nothing that grows with the number of jobs. Queries are in store/sql/dashboard.sql, behind
   `rota.store.dashboard`; numbers that aren't exact are `Count`s, and are shown with "about".
5. No script and no style in the page, no ``style`` attribute: the content security policy refuses them.
   Colours are custom properties of rota.css; a state is a word and a shape as well.
6. A path in ``PAGES`` of tests/server/dashboard/test_browser.py, and a picture in docs/images/dashboard
   (``make screenshots``).
"""
