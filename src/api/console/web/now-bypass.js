// Kernel bypass: whether it is in use, and the numbers of each core that has it.

import { badge, card, fill, h, outside, regionTable, row, setText } from "./dom.js";
import { number } from "./format.js";
import { bypass as text } from "./strings-traffic.js";

const COLUMNS = Object.entries(text.columns).map(([name, title]) => ({ title, class: ["core", "mode"].includes(name) ? undefined : "num" }));

/** The numbers of a core, in the order of the columns. */
const NUMBERS = [
  (b) => b.framesIn, (b) => b.framesOut, (b) => b.open, (b) => b.retransmissions, (b) => b.timeouts, (b) => b.cookiesSent, (b) => b.resetsReceived,
  (b) => b.resetsSentUnknown + b.resetsSentAbort, (b) => b.outOfOrder, (b) => b.dropped, (b) => b.kernelDrops,
  (b) => b.ringFull,
];

/** The card of kernel bypass, which shows only where it is configured: `{ element, update(status) }`. */
export function bypassCard() {
  const { element: region, table, body } = regionTable(text.title, COLUMNS);
  table.classList.add("rows");
  const state = h("p", { class: "line" });
  const element = card(text.title, {}, state, region);
  element.hidden = true;
  let lines = [];
  const update = ({ bypass, cores }) => {
    element.hidden = bypass === null;
    if (bypass === null) {
      return;
    }
    showState(state, bypass);
    const served = cores.filter((core) => core.bypass !== null);
    region.hidden = served.length === 0;
    if (lines.length !== served.length) {
      lines = served.map(coreLine);
      body.replaceChildren(...lines.map((line) => line.element));
    }
    served.forEach((core, index) => lines[index].update(core.bypass));
  };
  return { element, update };
}

function showState(host, { interface: name, obstacle }) {
  const said = `${name}|${obstacle}`;
  if (host.dataset.said !== said) {
    host.dataset.said = said;
    const [label, kind] = obstacle === null ? [text.inUse, "good"] : [text.notInUse, "bad"];
    fill(host, badge(label, kind), h("span", { class: "soft wrap" }, outside(obstacle ?? text.on(name))));
  }
}

function coreLine({ core }) {
  const mode = h("span");
  const cells = NUMBERS.map(() => h("span"));
  const update = (bypass) => {
    setText(mode, text.mode(bypass));
    NUMBERS.forEach((read, index) => setText(cells[index], number(read(bypass))));
  };
  return { element: row({ content: String(core), class: "lead named" }, { content: mode, class: "figure" }, ...cells.map((cell) => ({ content: cell, class: "num fact named" }))), update };
}
