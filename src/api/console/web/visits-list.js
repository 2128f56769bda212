// Single visits, newest first, page by page: when, from where, with what, and to which destination.

import { currentSession, get } from "./api.js";
import { badge, button, card, emptyState, h, moreOnPhone, outside, pageLink, regionTable, row, setText, targetLink } from "./dom.js";
import * as format from "./format.js";
import { detailPath } from "./link-parts.js";
import { reloader, settingLink } from "./parts.js";
import { visits as text } from "./strings-visits.js";
import { agentName } from "./user-agents.js";

const PER_PAGE = 10;
/** As many visits a phone shows at first. */
const ON_PHONE = 3;

/**
 * The card of the single visits of `source()`, which gives `{ path, query }` of the API: `{ element, load() }`. With `hasLinks`, each visit names its
 * link. `load()` shows the first page.
 */
export function visitsList({ source, hasLinks = false, signal }) {
  const host = h("div", { class: "stack" });
  let page = 1;
  let isTurned = false;
  const load = reloader(host, {
    signal,
    lines: 5,
    fetch(ends) {
      const { path, query } = source();
      const asked = get(path, { query: { ...query, page, itemsPerPage: PER_PAGE }, signal: ends });
      return hasLinks ? asked.catch(noneOfTag) : asked;
    },
    render: ({ visits }) => content(visits, { hasLinks, isTurned }, (to) => {
      [page, isTurned] = [to, true];
      load();
    }),
  });
  return {
    element: card(text.title, { beside: h("small", null, text.note), className: "visits" }, host),
    load() {
      [page, isTurned] = [1, false];
      return load();
    },
  };
}

/** The visits of a tag that no link has: none. Any other error is thrown again. */
function noneOfTag(error) {
  if (error.status !== 404) {
    throw error;
  }
  return { visits: { data: [], pagination: {} } };
}

function content({ data, pagination }, { hasLinks, isTurned }, turn) {
  if (data.length === 0) {
    return emptyState(text.none, [text.noneText, settingLink("visits.log")]);
  }
  const titles = columnsOf(data, hasLinks);
  // The heading names the zone, unless the clocks changed between these visits.
  const zones = new Set(data.map(({ date }) => format.zoneAt(date)));
  const [zone] = zones.size === 1 ? zones : [null];
  const titleOf = (name) => (name === "date" && zone ? text.timeIn(zone) : text.columns[name]);
  const cellOf = (name, visit) => (name === "date" && !zone ? format.time(visit.date) : CELLS[name](visit));
  const classOf = (name) => `${CLASSES[name]} ${name === "date" ? "figure" : name === (hasLinks ? "link" : "client") ? "lead" : "fact"}`;
  const rows = data.map((visit) => row(...titles.map((name) => ({ content: cellOf(name, visit), class: classOf(name) }))));
  const { element, table } = regionTable(text.title, titles.map((name) => ({ title: titleOf(name) })), rows);
  table.classList.add("rows");
  // On a phone, the link of a visit says enough of its destination.
  table.toggleAttribute("data-link-alone", hasLinks);
  const list = h("div", { class: "stack visit-rows" }, element, pagerOf(pagination, turn));
  if (isTurned || data.length <= ON_PHONE) {
    list.dataset.all = "";
  }
  return [pagination.complete === false && h("p", { class: "soft small" }, text.incomplete), list, moreOnPhone(list, text.showMore, "more-visits")];
}

/** Columns with nothing to say are left out, also that of a destination which is always the same. */
function columnsOf(data, hasLinks) {
  const isWanted = { link: hasLinks, place: data.some((visit) => placeOf(visit).length > 0), destination: new Set(data.map(({ redirectUrl }) => redirectUrl).filter(Boolean)).size > 1 };
  return Object.keys(text.columns).filter((name) => isWanted[name] ?? true);
}

const CLASSES = { date: "nowrap", client: "nowrap", link: "clip", from: "clip short", place: "clip place", destination: "clip to" };

const CELLS = {
  date: ({ date }) => format.shortTime(date),
  link: ({ visitedUrl }) => linkCell(visitedUrl, withoutBase(visitedUrl).split("?")[0]),
  client: ({ userAgent, potentialBot }) => h("span", null, outside(agentName(userAgent), { title: userAgent }), potentialBot && [" ", badge(text.bot)]),
  from: ({ referer }) => (referer === "" ? h("span", { class: "soft" }, text.direct) : h("bdi", { class: "clipped", title: referer }, hostOf(referer))),
  place: (visit) => placeCell(placeOf(visit)),
  destination: ({ redirectUrl }) => (redirectUrl ? targetLink(redirectUrl, { class: "clipped", title: redirectUrl }, format.bareUrl(redirectUrl)) : null),
};

/** The slug of a visit. On the default domain, it leads to the page of its link; a slash may be of the slug, or behind it. */
function linkCell(url, slug) {
  const isSlug = url.startsWith(`${currentSession().baseUrl}/`) && /^[^/%]+$/.test(slug);
  return h("bdi", { class: "clipped mono", title: url }, isSlug ? pageLink(detailPath({ shortCode: slug, domain: null }), slug) : slug);
}

/** A URL of the default domain without its beginning, which all of them share. */
function withoutBase(url) {
  const base = `${currentSession().baseUrl}/`;
  return url.startsWith(base) && url !== base ? url.slice(base.length) : format.bareUrl(url);
}

function hostOf(url) {
  try {
    return new URL(url).host || url;
  } catch {
    return url;
  }
}

/** The city and the country of a visit, as far as they are known. */
function placeOf({ visitLocation }) {
  return [visitLocation?.cityName, visitLocation?.countryName].filter(Boolean);
}

/** A place. On a phone, the city alone says enough. */
function placeCell([name, country]) {
  if (name === undefined) {
    return h("span", { class: "soft" }, text.unknownPlace);
  }
  return h("bdi", { class: "clipped", title: [name, country].filter(Boolean).join(", ") }, name, country && h("span", { class: "not-on-phone" }, `, ${country}`));
}

function pagerOf({ currentPage, pagesCount, totalItems, itemsInCurrentPage }, turn) {
  if (pagesCount <= 1) {
    return null;
  }
  const first = (currentPage - 1) * PER_PAGE + 1;
  const newer = button(text.newer, () => turn(currentPage - 1), { "data-action": "newer", disabled: currentPage <= 1 });
  const older = button(text.older, () => turn(currentPage + 1), { "data-action": "older", disabled: currentPage >= pagesCount });
  const said = h("span", { class: "soft", role: "status" });
  setText(said, text.shown(first, first + itemsInCurrentPage - 1, totalItems));
  return h("nav", { class: "pager", "aria-label": text.pages }, newer, older, said);
}
