// Refreshes the page each second without reloading it: the node renders it. Only changed nodes are touched, so
// that a focus, a selection and what was scrolled stay where they are.
"use strict";

const main = document.querySelector("main");

async function renew() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/status", { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    liken(main, fresh);
    document.body.classList.remove("stale");
  } catch {
    document.body.classList.add("stale");
  }
}

/** Makes a node like another one of the same kind. */
function liken(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  // What somebody has opened stays open.
  [...old.attributes].filter(({ name }) => name !== "open" && !fresh.hasAttribute(name)).forEach(({ name }) => old.removeAttribute(name));
  [...fresh.attributes].filter(({ name, value }) => old.getAttribute(name) !== value).forEach(({ name, value }) => old.setAttribute(name, value));
  [...old.childNodes].slice(fresh.childNodes.length).forEach((child) => child.remove());
  [...fresh.childNodes].forEach((child, at) => {
    const there = old.childNodes[at];
    if (!there) old.append(child);
    else if (there.nodeName !== child.nodeName) there.replaceWith(child);
    else liken(there, child);
  });
}

setInterval(renew, 1000);
