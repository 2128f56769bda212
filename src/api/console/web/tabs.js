// Tabs within a card: one of several lists, as the tabs pattern of ARIA describes them. The arrow keys lead from tab to tab, and choose it.

import { card, fill, h, uniqueId } from "./dom.js";

/** By how much a key moves among tabs; Home and End go to an end. */
const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

/**
 * A card that shows one of some lists. `lists` are `{ name, label, build() }`, of which `build` returns the content; `chosen` names the one that is shown first. `onChoose(name)` is
 * called for each one that a person chooses, before it is built.
 */
export function tabbedCard(title, { lists, chosen, onChoose, ...props }) {
  const panel = h("div", { role: "tabpanel", id: uniqueId("panel") });
  const tabs = lists.map(({ name, label }) =>
    h("button", { type: "button", class: "button", role: "tab", id: uniqueId("tab"), "data-tab": name, "aria-controls": panel.id, onclick: () => choose(name) }, label));
  const show = (name) => {
    tabs.forEach((one) => {
      const isChosen = one.dataset.tab === name;
      one.setAttribute("aria-selected", String(isChosen));
      one.tabIndex = isChosen ? 0 : -1;
      if (isChosen) {
        panel.setAttribute("aria-labelledby", one.id);
      }
    });
    fill(panel, lists.find((one) => one.name === name).build());
  };
  const choose = (name) => {
    onChoose(name);
    show(name);
  };
  const bar = h("div", { class: "segments small", role: "tablist", "aria-label": title, onkeydown: (event) => move(event, tabs) }, tabs);
  show(lists.some(({ name }) => name === chosen) ? chosen : lists[0].name);
  return card(title, { ...props, beside: bar }, panel);
}

/** Answers a key in a list of tabs: focuses the tab that it leads to, and chooses it. */
function move(event, tabs) {
  const at = tabs.indexOf(event.target);
  const to = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : event.key in STEPS ? (at + STEPS[event.key] + tabs.length) % tabs.length : at;
  if (at < 0 || (to === at && !["Home", "End"].includes(event.key)) || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) {
    return;
  }
  event.preventDefault();
  tabs[to].focus();
  tabs[to].click();
}
