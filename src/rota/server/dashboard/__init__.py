"""The dashboard: pages that show the state of Rota, and forms that change it.

Its pages are routes of the server like all others, each with a policy. They read under row security,
and make changes by the same operations (`rota.operations`) as the REST API, so that checks, results and
audit rows are the same.

To add a page:

1. Write a handler, decorated with `page` (GET) or `action` (POST, a form), and add it to ``ROUTES`` of
   its module; a new module is added to `rota.server.routes`. ::

       @pages.page("/queues", policy=VIEWER)
       async def queues(request: RotaRequest, tenant: TenantDep) -> pages.Html:
           return await pages.show(request, "queues.html", queues=await tenant.queues.list())

       @pages.action("/queues/{name:str}/pause", policy=OPERATOR)
       async def pause(request: RotaRequest, tenant: TenantDep, name: QueueName) -> pages.Back:
           await tenant.queues.pause(name, must_exist=True)
           return pages.back(request, "/queues", f"Queue {name} paused.")

   The first word of the path is the scope that a limited token needs. Tests of authorization are made
   from the route table: add a new kind of parameter to tests/server/test_gate.py and
   tests/server/api/test_tenants.py.
2. Write a template that extends ``frame.html`` and fills ``content``. `pages.show` lists the variables
   that every template has; `words` formats moments, durations and numbers; ``parts.html`` has macros.
   What changes while the page is open is in an element with an id and ``data-live``: the page is
   requested again in the background, and these elements are replaced. Rows of a table with
   ``data-live="rows"`` and ids are replaced one by one, so that the selected row stays selected.
3. Give `pages.Copyable` commands that do the same elsewhere.
4. Read nothing that grows with the number of jobs. Queries are in `rota.store.dashboard` (``stats``);
   numbers that aren't exact are `Count`s, and are shown with "about".
5. Use no script, no style and no ``style`` attribute in the page: the content security policy refuses
   them. Colours are custom properties of rota.css; a state also has a word and a shape.
6. Add the path to ``PAGES`` of tests/server/dashboard/test_browser.py, and a picture to
   docs/images/dashboard (``make screenshots``).
"""
