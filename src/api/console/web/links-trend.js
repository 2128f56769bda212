// The sparklines of rows: visits by day of the last 30 days, loaded together when the first row comes into sight.

import { get, keyOf } from "./api.js";
import { fill, h } from "./dom.js";
import { count } from "./format.js";
import { shape } from "./icons.js";
import { DAY_MS } from "./period.js";
import { list as text } from "./strings-links.js";

const PATH = "/rest/v3/visits/per-day";
const DAYS = 30;
/** Links of one request, and the length of their codes in its address. */
const AT_ONCE = 100;
const LENGTH_MAX = 6_000;
const KEPT_MAX = 2_000;
/** The size of the picture in pixels, and the room around the line for its width and its dot. */
const [WIDTH, HEIGHT, ROOM, DOT] = [88, 22, 3, 2.25];
/** The least number of visits at the top of the scale: a few visits are no peak. */
const TOP_LEAST = 4;

/** The days of links that were loaded, by key and number of visits: other visits make another trend. */
const known = new Map();
/** Places without a sparkline, each with its link; and those of them that have come into sight. */
const empty = new Map();
const inSight = new Set();
let isLoading = false;

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

/**
 * Draws the visits of each day as a line on a scale of its own, with a fill below it and a dot at its end. Without visits, it is a grey line. Today is left out
 * until it has as many visits as the day before: it is not over, and each line would end with a fall.
 */
function draw(place, days) {
  const isLow = days.at(-1) < days.at(-2);
  const label = text.trendOf(count(days.reduce((sum, one) => sum + one, 0), "visit"));
  const most = Math.max(TOP_LEAST, ...days);
  const step = (WIDTH - 2 * ROOM) / (DAYS - 1);
  const points = days.slice(0, isLow ? -1 : DAYS).map((visits, at) => [ROOM + at * step, HEIGHT - ROOM - (visits / most) * (HEIGHT - 2 * ROOM)].map((one) => one.toFixed(1)));
  const line = `M${points.map((point) => point.join(" ")).join("L")}`;
  const [[first], [last, end]] = [points[0], points.at(-1)];
  place.title = label;
  place.classList.toggle("none", days.every((visits) => visits === 0));
  fill(place, shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": label },
    shape("path", { class: "area", d: `${line}V${HEIGHT - ROOM}H${first}Z` }),
    shape("path", { class: "line", d: line }),
    shape("circle", { cx: last, cy: end, r: DOT })));
}
