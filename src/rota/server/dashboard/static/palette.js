// Finding and ordering: the command palette (Ctrl-K), completion in the search field, tables that are sorted by a click
// on a heading, and the selection of rows. Everything is on pages that work without it.

const $ = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const findUrl = document.body.dataset.findUrl;

async function ask(text) {
  const url = new URL(findUrl, location.href);
  url.searchParams.set("text", text);
  const answer = await fetch(url, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
}

// -- the palette

const palette = $("#palette");
if (palette && findUrl) {
  const input = $("input", palette), list = $("ul", palette);
  let asked = 0, timer, at = 0;
  const mark = () => {
    const items = all("li", list);
    at = Math.max(0, Math.min(items.length - 1, at));
    items.forEach((item, place) => { item.toggleAttribute("data-at", place === at); $("a", item)?.setAttribute("aria-selected", String(place === at)); });
    items[at]?.scrollIntoView({ block: "nearest" });
  };
  const look = async () => {
    const number = ++asked;
    try {
      const page = await ask(input.value);
      if (number !== asked || !page) return;
      list.replaceChildren(...$("#found", page).childNodes);
      for (const item of all("li", list)) if (item.nodeType === 1 && !$("a", item)) item.className = "soft";
      at = 0;
      mark();
    } catch { /* the server can't be reached: the page says so */ }
  };
  const open = () => { palette.showModal(); input.select(); look(); };
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); palette.open ? palette.close() : open(); }
  });
  for (const button of all("[data-palette]")) button.addEventListener("click", open);
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 120); });
  palette.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); at += 1; mark(); }
    if (event.key === "ArrowUp") { event.preventDefault(); at -= 1; mark(); }
    if (event.key === "Enter") { event.preventDefault(); const link = $("[data-at] a", list); if (link) location.href = link.href; }
  });
}

// -- completion of what is written into the search field

const search = $("#search");
if (search && findUrl) {
  const offered = document.createElement("datalist");
  offered.id = "completions";
  search.after(offered);
  search.setAttribute("list", offered.id);
  let asked = 0, timer;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const number = ++asked;
      try {
        const page = await ask(search.value);
        if (number === asked && page) offered.replaceChildren(...$("#completed", page).childNodes);
      } catch { /* it is only a help */ }
    }, 150);
  });
}

// -- sorting what is shown, by a click on a heading

const valueOf = (cell) => {
  const time = cell && $("time", cell);
  if (time) return Date.parse(time.dateTime);
  const text = (cell?.dataset.sort ?? cell?.textContent ?? "").trim();
  const number = Number.parseFloat(text.replace(/^about /, "").replaceAll(",", ""));
  const units = { "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400 };
  const parts = [...text.matchAll(/([\d.]+) ?(µs|ms|min|s|h|d)\b/g)];
  if (parts.length) return parts.reduce((sum, [, count, unit]) => sum + count * units[unit], 0);
  return Number.isNaN(number) ? text.toLowerCase() : number;
};

for (const table of all("table.stack")) {
  const body = table.tBodies[0];
  if (!body || !("rows" in body.dataset) || body.rows.length < 2) continue;
  [...table.tHead.rows[0].cells].forEach((heading, place) => {
    if (!heading.textContent.trim() || $("a, input", heading)) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...heading.childNodes);
    button.title = "Sort what is shown";
    heading.append(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row.cells[place]), row]);
      rows.sort(([a], [b]) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1));
      if (down) rows.reverse();
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}

// -- keys for what can be done here: r retry, c cancel, u undo

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.matches("input:not([type=checkbox]), textarea, select") || $("dialog[open]")) return;
  const action = { r: "retry", c: "cancel", u: "undo" }[event.key];
  if (!action) return;
  const chosen = $("tbody input[type=checkbox]:checked") && $(`button[name=do][value=${action}]`);
  const own = all("main form button").find((one) => one.form.action.split("?")[0].endsWith(`/${action}`) || (action === "undo" && /\/undo(\/\d+)?$/.test(one.form.action.split("?")[0])));
  const button = chosen || own;
  if (button) { event.preventDefault(); button.click(); }
});
