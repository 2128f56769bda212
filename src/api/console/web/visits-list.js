// Single visits, newest first, page by page: when, from where, with what, and to which destination.

import { currentSession, get } from "./api.js";
import { badge, button, card, emptyState, h, outside, regionTable, row, setText, targetLink } from "./dom.js";
import * as format from "./format.js";
import { reloader, settingLink } from "./parts.js";
import { visits as text } from "./strings-visits.js";
import { agentName } from "./user-agents.js";

const PER_PAGE = 10;

/**
 * The card of the single visits of `source()`, which gives `{ path, query }` of the API: `{ element, load() }`. With `hasLinks`, each visit names its
 * link. `load()` shows the first page.
 */
export function visitsList({ source, hasLinks = false, signal }) {
  const host = h("div", { class: "stack" });
  let page = 1;
  const load = reloader(host, {
    signal,
    lines: 5,
    fetch(ends) {
      const { path, query } = source();
      const asked = get(path, { query: { ...query, page, itemsPerPage: PER_PAGE }, signal: ends });
      return hasLinks ? asked.catch(noneOfTag) : asked;
    },
    render: ({ visits }) => content(visits, hasLinks, (to) => {
      page = to;
      load();
    }),
  });
  return {
    element: card(text.title, { beside: h("small", null, text.note), className: "visits" }, host),
    load() {
      page = 1;
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

function content({ data, pagination }, hasLinks, turn) {
  if (data.length === 0) {
    return emptyState(text.none, [text.noneText, settingLink("visits.log")]);
  }
  const titles = columnsOf(data, hasLinks);
  const rows = data.map((visit) => row(...titles.map((name) => ({ content: CELLS[name](visit), class: CLASSES[name] }))));
  const { element } = regionTable(text.title, titles.map((name) => ({ title: text.columns[name], isName: name === "date" })), rows);
  return [pagination.complete === false && h("p", { class: "soft small" }, text.incomplete), element, pagerOf(pagination, turn)];
}

/** Columns with nothing to say are left out. */
function columnsOf(data, hasLinks) {
  const isWanted = { link: hasLinks, place: data.some((visit) => placeOf(visit) !== ""), destination: data.some((visit) => visit.redirectUrl) };
  return Object.keys(text.columns).filter((name) => isWanted[name] ?? true);
}

const CLASSES = { date: "nowrap", client: "nowrap", link: "clip", from: "clip short", place: "place", destination: "clip" };

const CELLS = {
  date: ({ date }) => format.time(date),
  link: ({ visitedUrl }) => h("bdi", { class: "clipped mono", title: visitedUrl }, withoutBase(visitedUrl)),
  client: ({ userAgent, potentialBot }) => h("span", null, outside(agentName(userAgent), { title: userAgent }), potentialBot && [" ", badge(text.bot)]),
  from: ({ referer }) => (referer === "" ? h("span", { class: "soft" }, text.direct) : h("bdi", { class: "clipped", title: referer }, hostOf(referer))),
  place: (visit) => (placeOf(visit) === "" ? h("span", { class: "soft" }, text.unknownPlace) : outside(placeOf(visit))),
  destination: ({ redirectUrl }) => (redirectUrl ? targetLink(redirectUrl, { class: "clipped", title: redirectUrl }, format.bareUrl(redirectUrl)) : null),
};

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

function placeOf({ visitLocation }) {
  return [visitLocation?.cityName, visitLocation?.countryName].filter(Boolean).join(", ");
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
