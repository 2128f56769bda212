// The sparklines of rows: visits by day of the last 30 days, loaded together when the first row comes into sight.

import { get, keyOf } from "./api.js";
import { fill, h } from "./dom.js";
import { count } from "./format.js";
import { DAY_MS } from "./period.js";
import { list as text } from "./strings-links.js";

const PATH = "/rest/v3/visits/per-day";
const DAYS = 30;
/** Links of one request, and the length of their codes in its address. */
const AT_ONCE = 100;
const LENGTH_MAX = 6_000;
const KEPT_MAX = 2_000;
/** The width of a day and of its bar, and the heights of the picture and of the lowest bar: a single visit shows as well. */
const [STEP, BAR, HEIGHT, LEAST] = [2, 1.4, 20, 2];
const SVG = "http://www.w3.org/2000/svg";

/** The days of links that were loaded, by key and number of visits: other visits make another trend. */
const known = new Map();
/** Places without a sparkline, each with its link; and those of them that have come into sight. */
const empty = new Map();
const inSight = new Set();
/** The days of each place with a sparkline. Those on the page share one scale, so that rows can be compared. */
const drawn = new Map();
let isLoading = false;
let isScaling = false;

const sight = new IntersectionObserver((entries) => {
  entries.filter(({ isIntersecting, target }) => isIntersecting && empty.has(target)).forEach(({ target }) => inSight.add(target));
  work();
}, { rootMargin: "1500px" });

const nameOf = (link) => `${keyOf(link)} ${link.visitsSummary.total}`;

/** The place of a sparkline, which fills itself. */
export function trendOf(link) {
  const place = h("span", { class: "trend" });
  const days = link.visitsSummary.total === 0 ? Array.from({ length: DAYS }, () => 0) : known.get(nameOf(link));
  if (days) {
    draw(place, days);
  } else {
    if (empty.size >= KEPT_MAX) {
      [...empty.keys()].filter((one) => !one.isConnected).forEach(forget);
    }
    empty.set(place, link);
    sight.observe(place);
  }
  return place;
}

/** Whether a place can be seen: a row may be gone meanwhile, or its column hidden. */
const isShown = (place) => place.isConnected && place.offsetParent !== null;

async function work() {
  if (isLoading) {
    return;
  }
  isLoading = true;
  for (let places = nextPlaces(); places.length > 0; places = nextPlaces()) {
    const links = places.map((place) => empty.get(place));
    places.forEach(forget);
    await load(places, links);
  }
  isLoading = false;
}

/** The places of the next request: of links on one domain, those in sight first. */
function nextPlaces() {
  [...empty.keys()].filter((place) => inSight.has(place) && !isShown(place)).forEach(forget);
  if (inSight.size === 0) {
    return [];
  }
  const wanted = [...inSight, ...[...empty.keys()].filter((place) => !inSight.has(place) && isShown(place))];
  const { domain } = empty.get(wanted[0]);
  let length = 0;
  return wanted.filter((place) => empty.get(place).domain === domain).slice(0, AT_ONCE).filter((place, at) => {
    length += encodeURIComponent(empty.get(place).shortCode).length + 20;
    return at === 0 || length <= LENGTH_MAX;
  });
}

function forget(place) {
  sight.unobserve(place);
  inSight.delete(place);
  empty.delete(place);
}

async function load(places, links) {
  const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const startDate = new Date(today - (DAYS - 1) * DAY_MS).toISOString();
  const query = { "shortCodes[]": links.map((link) => link.shortCode), domain: links[0].domain ?? "DEFAULT", startDate };
  try {
    const { visits } = await get(PATH, { query });
    const found = new Map(visits.data.map((one) => [keyOf(one), one.perDay]));
    places.forEach((place, at) => {
      const perDay = found.get(keyOf(links[at]));
      if (perDay) {
        show(place, links[at], perDay, today);
      }
    });
  } catch {
    // The list is of use without them; the page of a link says what is wrong.
  }
}

function show(place, link, perDay, today) {
  const seen = new Map(perDay.map((one) => [Date.parse(one.date), one.total]));
  const days = Array.from({ length: DAYS }, (_, at) => seen.get(today - (DAYS - 1 - at) * DAY_MS) ?? 0);
  if (known.size >= KEPT_MAX) {
    known.delete(known.keys().next().value);
  }
  known.set(nameOf(link), days);
  draw(place, days);
}

function draw(place, days) {
  const svg = document.createElementNS(SVG, "svg");
  const label = text.trendOf(count(days.reduce((sum, one) => sum + one, 0), "visit"));
  Object.entries({ viewBox: `0 0 ${DAYS * STEP} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" }).forEach(([name, value]) => svg.setAttribute(name, value));
  svg.append(document.createElementNS(SVG, "path"));
  place.title = label;
  fill(place, svg);
  drawn.set(place, days);
  if (!isScaling) {
    isScaling = true;
    // All rows that are drawn now are on the page by then.
    queueMicrotask(scale);
  }
}

/** Draws the bars of all places on the page, on the scale of their highest day. */
function scale() {
  isScaling = false;
  [...drawn.keys()].filter((place) => !place.isConnected).forEach((place) => drawn.delete(place));
  const most = Math.max(1, ...[...drawn.values()].map((days) => Math.max(...days)));
  const barOf = (visits, at) => {
    const height = Math.max(LEAST, (visits / most) * HEIGHT).toFixed(1);
    return `M${at * STEP} ${HEIGHT}v-${height}h${BAR}v${height}z`;
  };
  drawn.forEach((days, place) => {
    place.querySelector("path").setAttribute("d", days.map((visits, at) => (visits > 0 ? barOf(visits, at) : "")).join(""));
  });
}
