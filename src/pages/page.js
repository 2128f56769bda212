// Copies the short URL, and says that it did. Without script there is no button, and the link can be copied by hand.
"use strict";
const button = document.getElementById("copy");
const said = document.getElementById("copied");
if (button && navigator.clipboard) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      said.textContent = "Copied.";
    } catch {
      said.textContent = "That was not allowed: copy the link by hand.";
    }
  });
}
