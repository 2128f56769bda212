// Adds a button to each command, which copies it. The page is whole without it.
"use strict";

/** How long a button says what it did, in milliseconds. */
const SAID_MS = 2000;

const said = document.createElement("p");
said.className = "said";
said.setAttribute("role", "status");
document.querySelector("main").append(said);

/** Without TLS browsers give pages no clipboard, but let them copy what is selected. */
async function copy(block) {
  try {
    await navigator.clipboard.writeText(block.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(block);
    return document.execCommand("copy");
  }
}

for (const block of document.querySelectorAll("pre")) {
  const command = document.createElement("div");
  command.className = "command";
  block.replaceWith(command);
  const button = document.createElement("button");
  button.type = "button";
  const name = (word) => {
    button.textContent = word;
    button.setAttribute("aria-label", `${word} ${block.textContent}`);
  };
  name("Copy");
  command.append(block, button);
  let timer;
  button.addEventListener("click", async () => {
    const isCopied = await copy(block);
    name(isCopied ? "Copied" : "Failed");
    said.textContent = isCopied ? "Copied." : "Copying failed. Select the command and copy it.";
    clearTimeout(timer);
    timer = setTimeout(() => {
      name("Copy");
      said.textContent = "";
    }, SAID_MS);
  });
}
