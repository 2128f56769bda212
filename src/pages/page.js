// Copies the short URL, and says that it did. Without script there is no button, and the link can be copied by hand.
"use strict";
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
