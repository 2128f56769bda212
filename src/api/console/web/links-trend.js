// The sparkline of a row: visits by day of the last 30 days, loaded when the row comes into sight.

import { get, keyOf, linkPath } from "./api.js";
import { fill, h } from "./dom.js";
import { count } from "./format.js";
import { DAY_MS } from "./period.js";
import { list as text } from "./strings-links.js";

const DAYS = 30;
/** Requests at a time: the list itself and redirects come first. */
const AT_ONCE = 3;
const KEPT_MAX = 2_000;
const [WIDTH, HEIGHT] = [72, 20];
const SVG = "http://www.w3.org/2000/svg";

/** The days of links that were loaded, by key and number of visits: other visits make another trend. */
const known = new Map();
const waiting = [];
let running = 0;

const inSight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) {
      inSight.unobserve(target);
      waiting.push(target);
    }
  }
  work();
}, { rootMargin: "100px" });

const links = new WeakMap();

const nameOf = (link) => `${keyOf(link)} ${link.visitsSummary.total}`;

/** The place of a sparkline, which fills itself. */
export function trendOf(link) {
  const place = h("span", { class: "trend" });
  const days = link.visitsSummary.total === 0 ? Array.from({ length: DAYS }, () => 0) : known.get(nameOf(link));
  if (days) {
    draw(place, days);
  } else {
    links.set(place, link);
    inSight.observe(place);
  }
  return place;
}

async function work() {
  while (running < AT_ONCE && waiting.length > 0) {
    const place = waiting.shift();
    // A row that was left meanwhile, or whose column is hidden, needs nothing.
    if (place.isConnected && place.offsetParent !== null) {
      running += 1;
      load(place).finally(() => {
        running -= 1;
        work();
      });
    }
  }
}

async function load(place) {
  const link = links.get(place);
  const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const startDate = new Date(today - (DAYS - 1) * DAY_MS).toISOString();
  try {
    const { visits } = await get(linkPath(link, "/visits"), { query: { startDate, itemsPerPage: 1 } });
    const seen = new Map(visits.perDay.map((one) => [Date.parse(one.date), one.nonBots + one.bots]));
    const days = Array.from({ length: DAYS }, (_, at) => seen.get(today - (DAYS - 1 - at) * DAY_MS) ?? 0);
    if (known.size >= KEPT_MAX) {
      known.delete(known.keys().next().value);
    }
    known.set(nameOf(link), days);
    draw(place, days);
  } catch {
    // The list is of use without it; the page of the link says what is wrong.
  }
}

function draw(place, days) {
  const most = Math.max(1, ...days);
  const points = days.map((visits, at) => `${((at / (DAYS - 1)) * WIDTH).toFixed(1)},${(HEIGHT - 1 - (visits / most) * (HEIGHT - 3)).toFixed(1)}`);
  const svg = document.createElementNS(SVG, "svg");
  const label = text.trendOf(count(days.reduce((sum, one) => sum + one, 0), "visit"));
  Object.entries({ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" }).forEach(([name, value]) => svg.setAttribute(name, value));
  const area = document.createElementNS(SVG, "polygon");
  area.setAttribute("points", `0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(area, line);
  place.title = label;
  fill(place, svg);
}
