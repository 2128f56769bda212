// What each core does: a small plot and the numbers of it.

import { card, h, regionTable, row, setText } from "./dom.js";
import { micros, number } from "./format.js";
import { linePlot, secondsBack } from "./plot.js";
import { cores as text } from "./strings-traffic.js";

const COLUMNS = Object.entries(text.columns).map(([name, title]) => ({ title, class: ["core", "plot"].includes(name) ? undefined : "num" }));

/** The table of cores: `{ element, update(status), destroy() }`. */
export function coreTable(seconds) {
  const { element: region, table, body } = regionTable(text.title, COLUMNS);
  table.classList.add("rows");
  const many = h("span");
  const element = card(text.title, { fold: many }, region);
  let lines = [];
  let most = 1;
  const drop = () => lines.forEach((line) => line.plot.destroy());
  const update = ({ cores, pulse }) => {
    // One core is the node itself.
    element.hidden = cores.length < 2;
    if (element.hidden) {
      return;
    }
    if (lines.length !== cores.length) {
      drop();
      setText(many, text.count(cores.length));
      lines = cores.map((core) => coreLine(core, seconds, () => most));
      body.replaceChildren(...lines.map((line) => line.element));
    }
    // All cores have the same scale: one sees which has more to do.
    most = pulse.redirects.reduce((all, core) => Math.max(all, ...core), 1);
    const xs = secondsBack(pulse.changes.length);
    cores.forEach((core, index) => lines[index].update(core, pulse.redirects[index] ?? xs.map(() => 0), pulse.misses[index] ?? [], xs));
  };
  return { element, update, destroy: drop };
}

function coreLine({ core }, seconds, most) {
  const host = h("div", { class: "spark" });
  const plot = linePlot(host, { label: text.plot(core), series: [{ label: text.columns.redirects, fill: true }], height: 30, axes: false, legend: false, seconds, most });
  const cells = Array.from({ length: 7 }, () => h("span"));
  const [cpu, traffic, ...others] = cells.map((cell) => ({ content: cell, class: "num fact named" }));
  Object.assign(traffic, { class: "num figure unit", label: text.unit });
  const update = (now, redirects, misses, xs) => {
    plot.set(xs, [redirects]);
    const texts = [
      now.cpu ?? text.anyCpu, number(redirects.at(-1) ?? 0), number(misses.at(-1) ?? 0), now.latencyMicros?.count > 0 ? micros(now.latencyMicros.p99) : "–",
      number(now.connections), number(now.links), number(now.codes.remaining),
    ];
    texts.forEach((text, index) => setText(cells[index], text));
  };
  return { element: row({ content: String(core), class: "lead named" }, cpu, { content: host, class: "below" }, traffic, ...others), plot, update };
}
