// Logging in by a link: its secret is in the fragment, which browsers don't send.
"use strict";
// The first page is in the viewer's zone already; rota.js goes on from there.
if (!localStorage.getItem("rota-zone")) {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  document.cookie = `rota_zone=${own}; path=/; max-age=31536000; samesite=lax`;
}
const told = document.getElementById("told");
const target = document.getElementById("password").dataset.target;

async function useLink(link) {
  history.replaceState(null, "", location.pathname + location.search);
  try {
    const answer = await fetch("/login/link", {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link }),
    });
    if (answer.ok) {
      location.replace(target);
      return;
    }
    const problem = await answer.json().catch(() => ({}));
    told.textContent = problem.detail || "The login failed.";
  } catch {
    told.textContent = "The server can't be reached.";
  }
  told.hidden = false;
}

if (location.hash.length > 1) useLink(location.hash.slice(1));
// A link that is opened where this page already is.
addEventListener("hashchange", () => location.hash.length > 1 && useLink(location.hash.slice(1)));
