// Makes public pages smoother: without script they work as well.
"use strict";

// A second click on the button of the form would make a second link. Who comes back to the page may send it again.
const form = document.querySelector("form");
form?.addEventListener("submit", () => setTimeout(() => { form.querySelector("button").disabled = true; }));
addEventListener("pageshow", () => form?.querySelectorAll("button").forEach((send) => { send.disabled = false; }));

// Copies the short URL, and says that it did; where this cannot be, the link is there to be copied by hand.
const button = document.getElementById("copy");
const shown = document.getElementById("short-url");
const said = document.getElementById("copied");

/** Without TLS browsers give pages no clipboard, but let them copy what is selected. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(shown);
    return document.execCommand("copy");
  }
}

if (button) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const copied = await copy(button.dataset.copy);
    said.textContent = copied ? "Copied." : "That was not allowed: copy the link by hand.";
  });
}
