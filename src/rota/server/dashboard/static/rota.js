// What a browser adds to the pages: they stay up to date, times are in the viewer's zone, and there are keys.
// Everything else works without it.

const root = document.documentElement;
root.classList.add("scripted");
const $ = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// -- times. The server shows and reads them in the zone of the cookie; here they follow a change at once.

const ZONES = ["local", "utc", "own"];
const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
let zone = localStorage.getItem("rota-zone") || "local"; // one of these, or the name of a zone
const formats = new Map();

function format(timeZone, at) {
  if (!formats.has(timeZone)) {
    const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
    formats.set(timeZone, [
      new Intl.DateTimeFormat("sv-SE", { ...parts, timeZone, timeZoneName: "short", hourCycle: "h23" }),
      new Intl.DateTimeFormat("en-GB", { weekday: "short", timeZone }),
    ]);
  }
  const [whole, weekday] = formats.get(timeZone);
  return `${weekday.format(at)} ${whole.format(at)}`;
}

const mine = () => ({ utc: "UTC", local: LOCAL, own: LOCAL })[zone] || zone;
const zoneOf = (element) => (zone === "own" && element.dataset.zone) || mine();

// The same as format_distance of core/durations.py: the two largest units, rounded to the nearest.
function distance(seconds) {
  if (Math.abs(seconds) < 1) return "now";
  const far = Math.round(Math.abs(seconds));
  let text = `${far} s`;
  if (far >= 60) {
    const pairs = [["min", 60, "s", 1, 3600], ["h", 3600, "min", 60, 172800], ["d", 86400, "h", 3600, Infinity]];
    for (const [large, largeSize, small, smallSize, end] of pairs) {
      const whole = Math.round(far / smallSize) * smallSize;
      if (whole >= end) continue;
      const rest = whole % largeSize;
      text = `${Math.floor(whole / largeSize).toLocaleString("en")} ${large}`;
      if (rest) text += ` ${rest / smallSize} ${small}`;
      break;
    }
  }
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

function showTimes(within = document) {
  for (const element of all("time[data-moment]", within)) {
    const at = new Date(element.dateTime);
    let text;
    try {
      text = format(zoneOf(element), at);
    } catch {
      text = format("UTC", at);
    }
    if (element.dataset.moment === "clock") text = text.slice(15, 23);
    if (element.textContent !== text) element.textContent = text;
  }
  for (const element of all("time[data-ago]", within)) {
    const text = distance((new Date(element.dateTime) - Date.now()) / 1000);
    if (element.textContent !== text) element.textContent = text;
    const whole = format(zoneOf(element), new Date(element.dateTime));
    if (element.title !== whole) element.title = whole;
  }
}

function chooseZone(choice) {
  zone = choice;
  localStorage.setItem("rota-zone", zone);
  document.cookie = `rota_zone=${mine()}; path=/; max-age=31536000; samesite=lax`;
  for (const button of all("[data-zone-choice]"))
    button.setAttribute("aria-pressed", String(button.dataset.zoneChoice === zone));
  showTimes();
}
for (const button of all("[data-zone-choice]"))
  button.addEventListener("click", () => {
    chooseZone(button.dataset.zoneChoice);
    // What only the server writes (titles, the calendar, hints of fields) follows, unless somebody is writing.
    if (mine() !== document.body.dataset.shownZone && !$("main form[method=post] :is(input:not([type=hidden]), textarea)")) location.reload();
  });
chooseZone(zone);
$(".zone-form")?.addEventListener("submit", (event) => localStorage.setItem("rota-zone", event.target.elements.choose.value.trim() || "utc"));
setInterval(() => document.hidden || showTimes(), 1000);

// -- what is live

const notice = $("#connection");
const liveUrl = document.body.dataset.liveUrl;
const LONGEST_PAUSE = 10000;
let heldBack = false, wanted = false, refreshing = false, outdated = false, notBefore = 0, source = null, patience = 1000;

function tell(text) {
  if (!notice) return;
  if (notice.textContent !== text) notice.textContent = text;
  notice.hidden = !text;
}

function lost() {
  const at = new Date().toLocaleTimeString("sv-SE");
  if (notice?.hidden) tell(`The server can't be reached. This page is from ${at}; retrying…`);
}

async function refresh() {
  if (document.hidden || !$("[data-live]")) return;
  if (refreshing) {
    outdated = true; // what is on its way may be from before the change
    return;
  }
  const wait = notBefore - performance.now();
  if (wait > 0) {
    if (!wanted) setTimeout(() => { wanted = false; refresh(); }, wait);
    wanted = true;
    return;
  }
  refreshing = true;
  const began = performance.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    if (answer.redirected && new URL(answer.url).pathname === "/login") {
      tell("Your session has ended. ");
      const link = document.createElement("a");
      link.href = location.href;
      link.textContent = "Log in again";
      notice.append(link);
      source?.close();
      return;
    }
    if (answer.ok) {
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      tell("");
    }
  } catch {
    lost();
  } finally {
    // A page that takes long to make is asked for less often.
    const took = performance.now() - began;
    notBefore = performance.now() + Math.min(Math.max(300, 10 * took), LONGEST_PAUSE);
    refreshing = false;
    if (outdated) {
      outdated = false;
      refresh();
    }
  }
}

// Whether somebody is in the middle of something there: writes, or has selected text.
const isBusy = (element) => isSelected(element)
  || (element.contains(document.activeElement) && document.activeElement.matches("input:not([type=checkbox]), textarea, select"));

function isSelected(element) {
  const selection = getSelection();
  return Boolean(selection && !selection.isCollapsed && selection.rangeCount && selection.getRangeAt(0).intersectsNode(element));
}
// What was held back while text was selected.
document.addEventListener("selectionchange", () => {
  if (heldBack && getSelection().isCollapsed) { heldBack = false; notBefore = 0; refresh(); }
});

function replace(fresh) {
  showTimes(fresh);
  const olds = all("[data-live]");
  const main = $("main");
  if (olds.some((old) => !fresh.getElementById(old.id)) && !isBusy(main)) {
    swap(main, $("main", fresh)); // another kind of page by now: what was empty has something, or the reverse
    return;
  }
  for (const old of all("[data-live]")) {
    const next = fresh.getElementById(old.id);
    if (!next) continue;
    if (isBusy(old)) { heldBack = true; continue; }
    if (old.dataset.live === "rows" && old.rows.length && next.rows.length) replaceRows(old, next);
    else swap(old, next);
  }
}

function swap(old, next) {
  if (old.innerHTML === next.innerHTML) return;
  const focused = old.contains(document.activeElement) ? pathTo(old, document.activeElement) : null;
  const open = new Map(all("details[id]", old).map((one) => [one.id, one.open]));
  const scrolled = new Map(all(".scroll[id], .log[id]", old).map((one) => [one.id, [one.scrollLeft, one.scrollTop]]));
  old.replaceChildren(...next.childNodes);
  for (const one of all("details[id]", old)) if (open.has(one.id)) one.open = open.get(one.id);
  for (const one of all(".scroll[id], .log[id]", old)) if (scrolled.has(one.id)) [one.scrollLeft, one.scrollTop] = scrolled.get(one.id);
  if (focused) follow(old, focused)?.focus({ preventScroll: true });
}

function pathTo(top, element) {
  const path = [];
  for (; element !== top; element = element.parentElement) path.unshift([...element.parentElement.children].indexOf(element));
  return path;
}
const follow = (top, path) => path.reduce((element, place) => element?.children[place], top);

// Rows change where they are. New ones wait behind a button, unless one is at the top and touches nothing.
function replaceRows(old, next) {
  const known = new Map([...old.rows].map((row) => [row.id, row]));
  const fresh = [];
  for (const row of [...next.rows]) {
    const mine = known.get(row.id);
    if (!mine) { fresh.push(row); continue; }
    known.delete(row.id);
    mine.classList.remove("gone");
    const box = $("input[type=checkbox]", mine), own = $("input[type=checkbox]", row);
    if (box && own) { own.checked = box.checked; own.toggleAttribute("checked", box.hasAttribute("checked")); }
    if (mine.innerHTML !== row.innerHTML && !mine.contains(document.activeElement) && !isSelected(mine)) mine.replaceChildren(...row.childNodes);
  }
  for (const row of known.values()) row.classList.add("gone");
  const news = $("#news");
  const touched = window.scrollY > 80 || $("input:checked", old) || old.contains(document.activeElement) || $("[data-at]", old);
  if (fresh.length && !touched) {
    for (const row of fresh.reverse()) { row.classList.add("fresh"); old.prepend(row); }
    for (const row of known.values()) row.remove();
    if (news) news.hidden = true;
  } else if (news) {
    news.hidden = !fresh.length;
    const text = fresh.length === 1 ? "1 new, show it" : `${fresh.length} new, show them`;
    const link = news.firstElementChild;
    if (link.textContent !== text) link.textContent = text;
  }
}

function connect() {
  if (!liveUrl || !$("[data-live]")) return;
  source = new EventSource(liveUrl);
  source.addEventListener("open", () => { patience = 1000; notBefore = 0; refresh(); });
  source.addEventListener("look", refresh);
  source.addEventListener("error", () => {
    lost();
    // An answer that is no stream ends it for good: begin again.
    if (source.readyState === EventSource.CLOSED) {
      setTimeout(connect, patience);
      patience = Math.min(patience * 1.5, 10000);
      if (navigator.onLine) refresh();
    }
  });
}
connect();
document.addEventListener("visibilitychange", () => document.hidden || refresh());
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => event.persisted && connect());

// -- a job's log, line by line

const LEVELS = { info: ["info", "warning", "error", "critical", "stderr"], warning: ["warning", "error", "critical", "stderr"], error: ["error", "critical"], printed: ["stdout", "stderr"] };
for (const list of all("[data-log-url]")) {
  const follower = new EventSource(list.dataset.logUrl);
  const known = new Set(all("li[data-line]", list).map((one) => one.dataset.line));
  const levels = LEVELS[list.dataset.level], find = list.dataset.find.toLowerCase();
  const wrap = $("#log-wrap"), followEnd = $("#log-follow");
  const wrapped = () => { list.classList.toggle("nowrap-lines", !wrap.checked); localStorage.setItem("rota-wrap", wrap.checked ? "yes" : "no"); };
  if (wrap) { wrap.checked = localStorage.getItem("rota-wrap") !== "no"; wrapped(); wrap.addEventListener("change", wrapped); }
  followEnd?.addEventListener("change", () => { if (followEnd.checked) list.scrollTop = list.scrollHeight; });
  follower.addEventListener("line", (event) => {
    const line = JSON.parse(event.data);
    const name = `${line.token}-${line.seq}`;
    // Lines that the page has stay as they are, so that what is selected stays selected.
    if (known.has(name) || (levels && !levels.includes(line.stream)) || !line.text.toLowerCase().includes(find)) return;
    known.add(name);
    const item = document.createElement("li");
    item.className = `is-${line.stream}`;
    item.dataset.line = name;
    const time = document.createElement("time");
    time.dateTime = line.at;
    time.dataset.moment = "clock";
    const stream = document.createElement("span");
    stream.className = "stream";
    stream.textContent = line.stream;
    const text = document.createElement("span");
    text.textContent = line.text;
    item.append(time, stream, text);
    list.append(item);
    showTimes(item);
    while (list.children.length > 5000) list.firstElementChild.remove();
    if (followEnd?.checked && !isSelected(list)) list.scrollTop = list.scrollHeight;
    $("#log-empty")?.setAttribute("hidden", "");
    list.hidden = false;
  });
  follower.addEventListener("end", () => follower.close());
}

// -- forms

for (const box of all("[data-all]"))
  box.addEventListener("change", () => {
    for (const one of all(`input[name="${box.dataset.all}"]`)) one.checked = box.checked;
    countChosen();
  });

function countChosen() {
  const told = $("#chosen");
  if (!told) return;
  const count = all("tbody input[type=checkbox]:checked").length;
  told.textContent = count ? `${count} selected` : "";
}
document.addEventListener("change", (event) => event.target.matches("tbody input[type=checkbox]") && countChosen());

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = $("pre, .secret", button.parentElement).textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren($("pre, .secret", button.parentElement));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

// JSON that is none is told where it is written, before the form is sent.
for (const area of all("textarea[data-json]")) {
  const check = () => {
    let wrong = "";
    try {
      const value = area.value.trim() ? JSON.parse(area.value) : {};
      if (typeof value !== "object" || value === null || Array.isArray(value)) wrong = "This must be a JSON object, with names and values.";
    } catch (error) {
      wrong = `This is not JSON: ${error.message}`;
    }
    let place = document.getElementById(`${area.name}-error`);
    if (!place && wrong) {
      place = document.createElement("span");
      place.id = `${area.name}-error`;
      place.className = "field-error";
      area.after(place);
      area.setAttribute("aria-describedby", place.id);
    }
    if (place) place.textContent = wrong;
    area.toggleAttribute("aria-invalid", Boolean(wrong));
    if (wrong) area.setAttribute("aria-invalid", "true");
  };
  area.addEventListener("change", check);
}

// A form whose effect is shown while one writes.
for (const form of all("form[data-preview]")) {
  let timer, asked = 0;
  const look = async () => {
    const number = ++asked, place = $("#preview");
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(form.dataset.preview, {
        method: "POST", credentials: "same-origin", headers: { Accept: "text/html" }, body: new URLSearchParams(new FormData(form)),
      });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview");
      if (number === asked && fresh) { showTimes(fresh); swap(place, fresh); }
      if (answer.ok) tell("");
    } catch {
      lost();
      setTimeout(look, patience); // nothing else on this page would notice that the server is back
    }
    place.removeAttribute("aria-busy");
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 250); });
  if ("previewNow" in form.dataset) look();
}

// -- keys

const PLACES = { o: "/", j: "/jobs", s: "/schedules", q: "/queues", d: "/dead", c: "/cluster", a: "/calendar", t: "/tasks", r: "/runs" };
let going = 0;

function step(by) {
  const rows = all("tbody[data-rows] tr");
  if (!rows.length) return;
  const at = rows.findIndex((row) => "at" in row.dataset);
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  rows[at]?.removeAttribute("data-at");
  next.dataset.at = "";
  next.scrollIntoView({ block: "nearest" });
  $("a", next)?.focus({ preventScroll: true });
}

function go(path) {
  const link = all(".side a").find((one) => new URL(one.href).pathname === path);
  if (link) location.href = link.href;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && typing) { event.target.blur(); return; }
  if (typing || $("dialog[open]")) return;
  if (going && performance.now() - going < 1500 && PLACES[event.key]) { going = 0; event.preventDefault(); event.stopImmediatePropagation(); go(PLACES[event.key]); return; }
  going = 0;
  const keys = {
    "/": () => $("#search").focus(),
    "?": () => $("#keys").showModal(),
    j: () => step(1),
    k: () => step(-1),
    g: () => { going = performance.now(); },
    t: () => chooseZone(ZONES[(ZONES.indexOf(zone) + 1) % ZONES.length]),
    x: () => {
      const box = $("tr[data-at] input[type=checkbox]");
      if (box) { box.checked = !box.checked; countChosen(); }
    },
  };
  const act = keys[event.key];
  if (act) { event.preventDefault(); act(); }
});
