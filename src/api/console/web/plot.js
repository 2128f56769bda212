// Plots: uPlot in the colours of the page, as wide as what is around them.

import uPlot from "./uplot.js";
import { fill, h, setText } from "./dom.js";
import * as format from "./format.js";
import { plots as text } from "./strings-traffic.js";

const COLOURS = ["--plot-1", "--plot-2", "--plot-3", "--plot-4"];
const AXIS_FONT = "11px Inter, system-ui, sans-serif";
const HEIGHT = 180;
/** The greatest width of a bar, in pixels. */
const BAR_WIDTH = 24;
/** Opacity of a bar whose time is not over. */
const PALE = "45%";
/** Widths of the numbers at the left: counts such as "500K", and values with a unit such as "100 µs". */
const COUNTS_WIDTH = 40;
const VALUES_WIDTH = 52;

const HOUR = 3_600;
const DAY = 24 * HOUR;
/** Seconds between the ticks below bars, so that no tick is between two bars. For uPlot, 30 days are a month, and 365 a year. */
const DAY_STEPS = [1, 2, 3, 4, 5, 7, 10, 15, 30, 60, 90, 120, 180, 365, 730, 1_825, 3_650].map((days) => days * DAY);
const HOUR_STEPS = [...[1, 2, 3, 4, 6, 8, 12].map((hours) => hours * HOUR), ...DAY_STEPS];

/** Steps of an axis of counts, which has no fractions: 1, 2, 5, 10 and so on. */
const COUNT_STEPS = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

const plots = new Set();
const redrawAll = () => plots.forEach((plot) => plot.redraw());
// Each redraw reads the colours of the theme.
for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) {
  matchMedia(query).addEventListener("change", redrawAll);
}
// Text that was drawn in another font is drawn again in Inter.
document.fonts.addEventListener("loadingdone", redrawAll);

/** The colour of a variable, which is written with six hexadecimal digits; `alpha` has two of them. */
function colour(name, alpha = "") {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() + alpha;
}

/**
 * A plot of lines over time. `series`: `[{ label, colour?, fill? }]`; `label` names the plot for those who do not see it.
 * `dots` marks each value, so that one without neighbours is visible. `log` gives it a logarithmic axis, on which values of 0 are left out. `value` formats a value, `when` an instant in milliseconds; `seconds` is how much time is shown, up to the last x, and
 * `most()` the largest value there is room for. Returns `{ element, set(xs, lists), destroy() }`, where `xs` are milliseconds and a value may be null.
 */
export function linePlot(host, options) {
  return draw(host, options, (line, name) => ({
    width: 1.5,
    stroke: () => colour(name),
    fill: line.fill ? () => colour(name, "26") : undefined,
    points: options.dots ? { show: true, size: 4, width: 0, fill: () => colour(name) } : { show: false },
  }));
}

/**
 * The same with bars, one for each x: counts by day, or `byHour`. `stacked` puts the bars of each series on those of the one before. A series with `line: true` is a dashed line over
 * the bars, after all of them. `barWidth` is the greatest width of a bar, in pixels. `running` names the last bar, which is paler, where its time is not over.
 */
export function barPlot(host, options) {
  const size = [0.75, options.barWidth ?? BAR_WIDTH];
  return draw(host, { ...options, isBars: true }, (line, name) => (line.line ? dashed(name) : {
    width: options.running ? 1 : 0,
    fill: () => colour(name),
    stroke: () => colour(name),
    paths: uPlot.paths.bars({ size, align: 0, ...(options.running ? { disp: lastPale(name) } : {}) }),
    points: { show: false },
  }));
}

/** The colours of bars, of which the last is pale within an edge. A bar of nothing has no edge. */
function lastPale(name) {
  const each = (last) => ({ unit: 3, values: (plot, index) => plot.data[index].map((height, at, { length }) => (!height ? null : at === length - 1 ? last() : colour(name))) });
  return { fill: each(() => pale(name)), stroke: each(() => colour(name)) };
}

/** A colour on a card, of little opacity. Bars lie on each other, so it is a mixture. */
function pale(name) {
  return `color-mix(in srgb, ${colour(name)} ${PALE}, ${colour("--card")})`;
}

/** A dashed line. A single value, which no line shows, is a dot. */
function dashed(name) {
  return { width: 1.5, dash: [4, 3], stroke: () => colour(name), points: { show: (plot) => plot.data[0].length === 1, size: 5, width: 0, fill: () => colour(name) } };
}

function draw(host, options, style) {
  const { series, label, height = HEIGHT, value = format.number, when = format.clock, legend = true, isBars = false, running = null } = options;
  const picture = h("div", { class: "plot-picture", role: "img", "aria-label": label, style: { height: `${height}px` } });
  const key = legendOf(series, value, when, isBars, running);
  const element = h("div", { class: "plot" }, legend && key.element, picture);
  fill(host, element);
  // Stacked bars are drawn from behind: the last series as high as all together.
  const isBar = (_, index) => !series[index].line;
  const coloured = series.map((line, index) => ({ colour: COLOURS[index % COLOURS.length], ...line }));
  const drawn = options.stacked ? [...coloured.filter(isBar).reverse(), ...coloured.filter(({ line }) => line)] : series;
  let shown = [[], series.map(() => [])];
  const plot = new uPlot(uplotOptions({ ...options, series: drawn }, height, style, (at) => key.show(...shown, at)), [[], ...series.map(() => [])], picture);
  plots.add(plot);
  const observer = new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width > 0) {
      plot.setSize({ width: Math.floor(contentRect.width), height });
    }
  });
  observer.observe(picture);
  return {
    element,
    set(xs, lists) {
      shown = [xs, lists];
      const heights = options.log ? lists.map((list) => list.map((one) => (one > 0 ? one : null))) : lists;
      plot.setData([xs.map((ms) => ms / 1000), ...(options.stacked ? [...stackedUp(lists.filter(isBar)), ...lists.filter((_, index) => series[index].line)] : heights)]);
      key.show(xs, lists, plot.cursor.idx);
      picture.setAttribute("aria-label", describe(label, series, lists, value, isBars));
    },
    destroy() {
      observer.disconnect();
      plots.delete(plot);
      plot.destroy();
    },
  };
}

/** The heights of stacked bars, the highest first. */
function stackedUp(lists) {
  return lists.map((_, index) => lists[0].map((_value, at) => lists.slice(0, index + 1).reduce((sum, list) => sum + (list[at] ?? 0), 0))).reverse();
}

function uplotOptions({ series, value = format.number, utc = false, axes = true, isBars = false, byHour = false, log = false, most, seconds }, height, style, onCursor) {
  const axis = {
    stroke: () => colour("--soft"),
    font: AXIS_FONT,
    grid: { stroke: () => colour("--grid"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: 300,
    height,
    legend: { show: false },
    tzDate: utc ? (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : undefined,
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7, fill: (plot, index) => plot.series[index].stroke(plot, index) } },
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx)] },
    scales: {
      x: { time: true, range: isBars ? (plot) => widened(plot, byHour ? HOUR : DAY) : seconds ? (_plot, _low, high) => [high - seconds, high] : undefined },
      y: log ? { distr: 3, range: (_plot, low, high) => decades(low, high) } : { range: (_plot, _low, high) => [0, Math.max(most?.() ?? high ?? 0, 1) * 1.1] },
    },
    axes: [
      { ...axis, show: axes, space: 70, size: utc || isBars ? 40 : 28, values: TIME_VALUES, ...(isBars ? { incrs: byHour ? HOUR_STEPS : DAY_STEPS } : {}) },
      { ...axis, show: axes, size: value === format.number ? COUNTS_WIDTH : VALUES_WIDTH, space: 34, ...(!log && value === format.number ? { incrs: COUNT_STEPS } : {}), ...(log ? { filter: wholeDecades, grid: { ...axis.grid, filter: wholeDecades } } : {}), values: (_plot, splits) => splits.map((split) => (split === null ? "" : value === format.number ? format.short(split) : value(split))) },
    ],
    // At the right there is room for half of the last time or day.
    padding: axes ? [8, isBars ? 18 : 24, 0, 0] : [2, 0, 2, 0],
    series: [{}, ...series.map((line, index) => ({ label: line.label, spanGaps: false, ...style(line, line.colour ?? COLOURS[index % COLOURS.length]) }))],
  };
}

/** The places of an axis that are powers of ten; the others have no line and no number. */
function wholeDecades(_plot, splits) {
  return splits.map((split) => (Math.abs(Math.log10(split) - Math.round(Math.log10(split))) < 1e-9 ? split : null));
}

/** The whole decades around values, at least one. */
function decades(low, high) {
  const from = Math.floor(Math.log10(low ?? 1));
  return [10 ** from, 10 ** Math.max(Math.ceil(Math.log10(high ?? 1)), from + 1)];
}

/** Times of an axis by a clock of 24 hours and days before months: step, text, and what is said when the day or year changes. */
const TIME_VALUES = [
  [3600 * 24 * 365, "{YYYY}", null, null, null, null, null, null, 1],
  [3600 * 24 * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [3600 * 24, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
];

/** Room for the first and the last bar. From the data alone: a redraw passes the range that was widened before. */
function widened(plot, step) {
  const xs = plot.data[0];
  const half = xs.length > 1 ? Math.min(...xs.slice(1).map((x, index) => x - xs[index])) / 2 : step / 2;
  return xs.length > 0 ? [xs[0] - half, xs.at(-1) + half] : [null, null];
}

/** The sum of a list, in which values may be missing. */
const totalOf = (list) => list.reduce((sum, one) => sum + (one ?? 0), 0);

/** A line above the plot: what each colour is, with its value where the pointer is; elsewhere the last value of a line, and the total of bars. `running` names a last bar that is not over, once it has a height. */
function legendOf(series, value, when, isBars, running) {
  const at = h("span", { class: "plot-when" });
  const values = series.map(() => h("b"));
  const keys = series.map((line, index) => {
    const drawnIn = `var(${line.colour ?? COLOURS[index % COLOURS.length]})`;
    const swatch = line.line ? h("i", { class: "swatch dashed", style: { color: drawnIn } }) : h("i", { class: "swatch", style: { "background-color": drawnIn } });
    return h("span", { class: "plot-key" }, swatch, line.label, " ", values[index]);
  });
  const ofLast = running && h("span", { class: "plot-key" }, h("i", { class: "swatch pale" }), running);
  const element = h("div", { class: "plot-legend", "aria-hidden": "true" }, keys, ofLast, at);
  const show = (xs, lists, index) => {
    const last = xs.length - 1;
    const isPointed = index !== null && index !== undefined;
    const of = (list) => (isPointed || !isBars ? list[index ?? last] : totalOf(list));
    values.forEach((node, line) => setText(node, last < 0 ? "" : value(of(lists[line]))));
    setText(at, last < 0 || !isPointed ? "" : running && index === last ? running : when(xs[index]));
    if (running) {
      ofLast.hidden = !lists.some((list, line) => !series[line].line && list[last] > 0);
    }
  };
  return { element, show };
}

/** The instants of the last seconds, the last of them now. */
export function secondsBack(length) {
  const now = Math.floor(Date.now() / 1000) * 1000;
  return Array.from({ length }, (_, index) => now - (length - 1 - index) * 1000);
}

function describe(label, series, lists, value, isBars) {
  const said = series.map((line, index) => {
    const known = lists[index].filter((one) => one !== null && one !== undefined);
    return known.length === 0 ? text.noData(line.label) : (isBars ? text.bars : text.series)(line.label, value(isBars ? totalOf(known) : known.at(-1)), value(known.reduce((most, one) => Math.max(most, one), 0)));
  });
  return text.described(label, said.join("; "));
}
