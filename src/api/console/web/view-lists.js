// Destination rules: the check of single URLs, the allow list and the block list as rows or as text, a draft of both, and its save.

import { get } from "./api.js";
import { actionButton, button, fill, h, loadInto, pageHead, setText } from "./dom.js";
import * as format from "./format.js";
import { applyCard, explain, focusHeading, offerUndo } from "./hosts-apply.js";
import { loadDraft } from "./hosts-draft.js";
import { hostLists } from "./hosts-lists.js";
import { rulesText } from "./hosts-text.js";
import { onLive } from "./live.js";
import { page as text } from "./strings-hosts.js";
import { pages } from "./strings-shell.js";
import { urlCheck } from "./url-check.js";

export async function show(main, { signal }) {
  const host = h("div", { class: "stack" });
  main.append(pageHead(pages.rules), host);
  // The settings only say where to set a source, so the page does without them after an error.
  const load = () => Promise.all([loadDraft(signal), get("/admin/api/settings", { signal }).catch(() => ({ settings: [] }))]);
  await loadInto(host, load, ([draft, { settings }]) => content(draft, settings, signal), { lines: 12 });
}

function content(draft, settings, signal) {
  const place = h("div", { class: "stack" });
  const lists = hostLists(draft, signal);
  const written = rulesText(draft, signal);
  const views = { list: lists.element, text: written.element };
  const summary = h("p", { class: "soft", role: "status" });
  const review = button(text.review, () => document.querySelector("#draft h2").focus(), { kind: "quiet", "data-action": "review" });
  const back = actionButton(text.useSettings, () => useSettings(draft), { kind: "quiet", "data-action": "use-settings" });
  const choices = Object.keys(views).map((name) => button(text.views[name], () => choose(name), { "data-view": name }));
  let shown = draft.isRead ? "list" : "text";
  const draw = () => {
    fill(place, views[shown]);
    choices.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.view === shown)));
  };
  // Rows need a text without mistakes. A text with mistakes stays on the page.
  const choose = async (name) => {
    if (name === "list" && !draft.isRead && !(await written.read())) {
      written.input.focus();
      return;
    }
    shown = name;
    draw();
  };
  const tell = () => {
    const changes = draft.changes().length;
    if (draft.isRead || draft.isFaulty) {
      setText(summary, draft.isFaulty ? text.unread : changes > 0 ? text.changed(changes) : inForce(draft.base));
      review.hidden = draft.isFaulty || changes === 0;
      back.hidden = draft.base.saved === null || draft.isFaulty || changes > 0;
    }
    back.disabled = !draft.isRead || back.getAttribute("aria-busy") === "true";
  };
  draw();
  tell();
  draft.follow(tell, signal);
  const end = onLive(({ status }) => {
    if (status !== null) {
      lists.update(status);
      // The next status asks again.
      draft.refresh(status.destinationRules.saved, signal).catch(() => {});
    }
  });
  signal.addEventListener("abort", end);
  return [
    urlCheck(draft, signal),
    h("div", { class: "toolbar" }, summary, review, back, h("div", { class: "segments", role: "group", "aria-label": text.view }, choices)),
    place,
    applyCard(draft, settings, signal),
  ];
}

/** Says whether the rules in force were saved, by whom and when. */
const inForce = ({ saved }) => (saved === null ? text.inForce : text.saved(saved.by, format.time(saved.at).textContent));

/** Has the hosts of the settings apply again. */
async function useSettings(draft) {
  try {
    offerUndo(draft, text.settingsUsed, await draft.useSettings());
    focusHeading();
  } catch (error) {
    await explain(draft, error, text.notReturned);
  }
}
