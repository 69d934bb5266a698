"""Every page and every action of the dashboard without a script: by links and forms of the HTML."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import msgspec

from rota.server.routes import all_routes
from tests.support.audit_world import World
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import enter

_MOST_OF_A_PAGE = 4  # addresses of one route that are read
_ROUNDS = 12
# What a person would write into fields that are empty.
_WRITTEN = {
    "name": "something", "task": "greet", "rule": "0 9 * * *", "url": "https://example.org/new",
    "text": "2027-12-24", "password": "correct horse battery", "payload": "{}", "queue": "mail",
    "weight": "2", "note": "seen", "tz": "UTC", "zone": "Asia/Tokyo", "address": "/jobs",
}  # fmt: skip
# Of these boxes a person would tick one at least.
_TICKED = {"permission"}
# Reached by a script only, which adds to what works without: the preview of a rule while one writes it.
_SCRIPT_ONLY = {"/schedules/preview"}
# One round each, after all others: they end the session, or take away what others need.
_ASKS = ("cancel", "discard", "remove", "revoke", "delete", "stop")


class Form(msgspec.Struct):
    method: str
    action: str
    fields: list[tuple[str, str]]
    buttons: list[tuple[str, str, str]]  # name, value, words


class Page(HTMLParser):
    """The links and forms of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._select: str | None = None
        self._area: tuple[str, list[str]] | None = None
        self._button: tuple[str, str, list[str]] | None = None
        self.headings: list[str] = []
        self._heading = self._chosen = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "h1":
            self._heading = True
        elif tag == "form":
            self._form = Form(given.get("method", "get"), given.get("action", ""), [], [])
            self.forms.append(self._form)
        elif self._form is not None:
            self._field(self._form, tag, given)

    def _field(self, form: Form, tag: str, given: dict[str, str]) -> None:
        if tag == "input" and "name" in given:
            kind = given.get("type", "text")
            wanted = given["name"] in _TICKED and given["name"] not in dict(form.fields)
            if kind not in ("checkbox", "radio") or "checked" in given or wanted:
                form.fields.append((given["name"], given.get("value", "")))
        elif tag == "select":
            self._select = given.get("name")
        elif tag == "option" and self._select:
            known = dict(form.fields)
            if "selected" in given or self._select not in known:
                form.fields = [one for one in form.fields if one[0] != self._select]
                form.fields.append((self._select, given.get("value", "")))
                self._chosen = "value" not in given  # then its text is
        elif tag == "textarea":
            self._area = (given.get("name", ""), [])
        elif tag == "button" and given.get("type", "submit") == "submit":
            self._button = (given.get("name", ""), given.get("value", ""), [])

    def handle_data(self, data: str) -> None:
        if self._chosen and self._form and self._select:
            self._form.fields[-1] = (self._select, data.strip())
            self._chosen = False
        if self._area:
            self._area[1].append(data)
        if self._button:
            self._button[2].append(data)
        if self._heading:
            self.headings.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "h1":
            self._heading = False
        elif tag == "select":
            self._select = None
        elif tag == "textarea" and self._area and self._form:
            self._form.fields.append((self._area[0], "".join(self._area[1])))
            self._area = None
        elif tag == "button" and self._button and self._form:
            self._form.buttons.append((*self._button[:2], "".join(self._button[2]).strip()))
            self._button = None


class Routes:
    """Which route an address belongs to."""

    def __init__(self, method: str) -> None:
        paths = sorted(
            path for route in all_routes() for path in getattr(route, "paths", ())
            if method in getattr(route, "http_methods", ()) and not route.include_in_schema
            and not path.startswith("/v1/")
        )  # fmt: skip
        # Exact paths first: /jobs/new is not a job.
        self._forms = sorted(
            ((re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path)), path) for path in paths),
            key=lambda one: "{" in one[1],
        )

    def of(self, path: str) -> str | None:
        return next((name for form, name in self._forms if form.fullmatch(path)), None)

    @property
    def all(self) -> set[str]:
        return {name for _, name in self._forms}


def _body(form: Form, button: tuple[str, str, str] | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in form.fields:
        found.setdefault(name, []).append(value or _WRITTEN.get(name, ""))
    if button and button[0]:
        found[button[0]] = [button[1]]
    return found


class Walk:
    """A person without a script: follows links, and sends each kind of form once."""

    def __init__(self, browser: httpx.AsyncClient) -> None:
        self._browser = browser
        self._pages, self._actions = Routes("GET"), Routes("POST")
        self.read: Counter[str] = Counter()
        self.sent: dict[str, int] = {}
        self.asked: dict[str, str] = {}  # the questions, by the route that asks
        self.words: dict[str, set[str]] = {}  # of the buttons, by the route that they lead to
        self.invalid: dict[str, str] = {}
        self._seen: set[str] = set()
        self._forms: dict[str, Form] = {}

    async def follow(self, begin: str) -> None:
        waiting = [begin]
        while waiting:
            address = waiting.pop(0)
            split = urlsplit(address)
            route = self._pages.of(split.path)
            if split.netloc or route is None or address in self._seen:
                continue
            if self.read[route] >= _MOST_OF_A_PAGE and address != begin:
                continue
            self._seen.add(address)
            self.read[route] += 1
            answer = await self._browser.get(address)
            while answer.is_redirect:
                answer = await self._browser.get(answer.headers["location"])
            assert answer.status_code == 200, (address, answer.status_code)
            if "html" in answer.headers["content-type"]:
                waiting += self._note(answer, address)

    def _note(self, answer: httpx.Response, address: str) -> list[str]:
        page = Page(answer.text)
        for form in page.forms:
            path = urlsplit(form.action).path
            if form.method.lower() == "post" and (route := self._actions.of(path)):
                # What takes something away takes the last: the others are for the first.
                if route.endswith(_ASKS) or route not in self._forms:
                    self._forms[route] = form
                self.words.setdefault(route, set()).update(words for _, _, words in form.buttons)
        return [urljoin(address, link) for link in page.links if not link.startswith("#")]

    async def act(self, *, last: bool) -> bool:
        """Send the forms of routes that were not sent yet; whether there was one."""
        waiting = [
            (route, form) for route, form in self._forms.items()
            if route not in self.sent and (last or not route.endswith(_ASKS))
            and route not in ("/logout", "/session/logout")
        ]  # fmt: skip
        for route, form in waiting:
            button = form.buttons[0] if form.buttons else None
            answer = await self._browser.post(form.action, data=_body(form, button))
            question = Page(answer.text)
            if answer.status_code == 200 and "".join(question.headings).endswith("?"):
                self.asked[route] = "".join(question.headings)
                [sure] = [one for one in question.forms if ("sure", "yes") in one.fields]
                assert [words for _, _, words in sure.buttons] != [""]
                answer = await self._browser.post(sure.action, data=_body(sure, sure.buttons[0]))
            self.sent[route] = answer.status_code
            if answer.status_code == 422:
                self.invalid[route] = " ".join(re.findall(r'role="alert">(.*?)</p>', answer.text))
            if answer.status_code == 303:  # the message there may offer to undo it
                target = answer.headers["location"]
                self._note(await self._browser.get(target), target)
        return bool(waiting)


async def test_every_page_is_read_and_every_action_done_without_a_script(server: LiveServer):
    world = World(server.app)
    await world.fill()
    walk = Walk(await enter(server))
    await server.app.queues.set_policy("mail", "fair")
    await server.app.queues.set_weight("mail", "acme", 2)
    begins = (
        "/", "/jobs?state=failed", "/jobs/changes", "/alerts", "/forecast", "/find", "/views", "/runs",
        "/calendars", "/jobs/compare?a=" + world.names["one"], "/doctor", "/queues/mail",
        "/jobs/" + world.names["two"],
    )  # fmt: skip
    for number in range(_ROUNDS):
        for address in begins:
            await walk.follow(address)
        walk.read.clear()
        walk._seen.clear()
        if not await walk.act(last=number > 3) and number > 4:
            break
    refused = {
        route: status for route, status in walk.sent.items() if status not in (200, 201, 303, 422)
    }
    assert refused == {}
    wanted = {
        route for route in Routes("POST").all - _SCRIPT_ONLY
        if not route.startswith(("/login", "/logout", "/oidc", "/session/logout"))
    }  # fmt: skip
    assert wanted - walk.sent.keys() == set()
    assert walk.invalid == {}


async def test_what_can_not_be_undone_asks_first_and_its_button_says_so(server: LiveServer):
    """One pattern: a button with an ellipsis, a page with the question, a button with the answer."""
    world = World(server.app)
    await world.fill()
    walk = Walk(await enter(server))
    for address in ("/", "/jobs?state=failed", "/views", "/runs"):
        await walk.follow(address)
    asks: dict[str, Any] = {
        route: words for route, words in walk.words.items() if route.endswith(_ASKS)
    }
    assert len(asks) >= 8
    for route, words in asks.items():
        assert all(word.endswith("…") for word in words), (route, words)
    while await walk.act(last=True):
        pass
    assert {route for route in asks if route not in walk.asked} == set()
    assert all(question.endswith("?") for question in walk.asked.values())
