// Renews the page each second without loading it anew: what is drawn comes from the node.
"use strict";

const main = document.querySelector("main");

async function renew() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/status", { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const scrolled = [...main.querySelectorAll(".wide")].map((wide) => wide.scrollLeft);
    main.replaceChildren(...fresh.childNodes);
    main.querySelectorAll(".wide").forEach((wide, at) => (wide.scrollLeft = scrolled[at] ?? 0));
    document.body.classList.remove("stale");
  } catch {
    document.body.classList.add("stale");
  }
}

setInterval(renew, 1000);
