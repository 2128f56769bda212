// Makes public pages smoother. They also work without script.
"use strict";

// A second click on the button would create a second link. After going back, the form can be sent again.
const form = document.querySelector("form");
const send = form?.querySelector("button");
const [ready, sent] = [send?.textContent, send?.dataset.sent];
const show = (isSent) => {
  send.disabled = isSent;
  send.textContent = isSent && sent ? sent : ready;
};
form?.addEventListener("submit", () => setTimeout(() => show(true)));
addEventListener("pageshow", () => send && show(false));

// Times are those of the viewer's zone, with UTC on hover.
const zoneOf = (at) => new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(at).find(({ type }) => type === "timeZoneName").value;
for (const time of document.querySelectorAll("time[datetime]")) {
  const at = new Date(time.dateTime);
  time.title = time.textContent;
  time.textContent = `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}, ${at.toLocaleTimeString("en-GB", { timeStyle: "short" })} ${zoneOf(at)}`;
}
const until = document.getElementById("validUntil");
if (until) {
  // What is sent, and comes back with a mistake, is in UTC.
  const at = new Date(`${until.defaultValue}Z`);
  if (!Number.isNaN(at.getTime())) {
    until.value = new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  }
  until.labels[0].textContent = `Expires (${zoneOf(new Date())})`;
  form.addEventListener("formdata", ({ formData }) => {
    const wanted = new Date(until.value);
    if (!Number.isNaN(wanted.getTime())) {
      formData.set("validUntil", wanted.toISOString().slice(0, 16));
    }
  });
}

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
    // The page shows the link without its scheme; what is copied has it.
    document.addEventListener("copy", (event) => {
      event.clipboardData.setData("text/plain", text);
      event.preventDefault();
    }, { once: true });
    getSelection().selectAllChildren(shown);
    return document.execCommand("copy");
  }
}

if (button) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const copied = await copy(button.dataset.copy);
    said.textContent = copied ? "Copied." : "Copying failed. Select the link and copy it.";
  });
}
