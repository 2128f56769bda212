// The picture of a fleet: Redis, and below it the nodes, each on a line that says how far behind it is. With two sites, the
// other one is beside it, at the end of the line between them.

import { card, h, outside, setText } from "./dom.js";
import { contactOf, relaysOf, siteLag } from "./fleet-sites.js";
import * as format from "./format.js";
import { fleet as text } from "./strings-access.js";

/** A lag that people would notice: a link that was created elsewhere is missing for that long. */
const LAG_NOTED_MS = 2_000;

/** The card: `{ content, update(status) }`. `stateOf(node, status)` gives `[text, kind]`. */
export function fleetMap(status, stateOf) {
  const { node: own, site } = status.fleet;
  const redis = h("div", { class: "map-redis" }, h("b", null, text.redis), h("span", { class: "map-state" }));
  const nodes = new Map(status.fleet.nodes.map(({ node }) => [node, box(node, node === own, site !== null)]));
  const list = h("ul", { class: "map-nodes", "aria-label": text.nodesLabel }, [...nodes.values()].map((one) => one.element));
  const map = h("div", { class: "map" }, redis, list);
  const sites = site === null ? null : withOtherSite(site, map);
  return {
    content: card(text.map, {}, sites === null ? map : sites.element),
    update(now) {
      redis.dataset.kind = now.redis.connected ? "good" : "bad";
      setText(redis.lastChild, now.redis.connected ? text.connected : text.disconnected);
      now.fleet.nodes.forEach((one) => nodes.get(one.node).update(one, stateOf(one, now)));
      sites?.update(now.fleet);
    },
  };
}

/** The map of this site with the other site beside it, whose nodes are not known here. */
function withOtherSite({ name, other }, map) {
  const [lag, relay, contact] = Array.from({ length: 3 }, () => h("span"));
  const line = h("p", { class: "map-between" }, lag, relay);
  contact.className = "map-state";
  const there = h("div", { class: "map-redis" }, h("b", null, text.redis), contact);
  const site = (title, says, ...content) => h("section", { class: "map-site", "aria-label": text.sites.named(title) },
    h("h3", null, outside(title), " ", h("small", null, says)), content);
  return {
    element: h("div", { class: "map-sites" },
      site(name, text.sites.thisSite, map), line,
      site(other, text.sites.otherSite, h("div", { class: "map" }, there), h("p", { class: "soft small" }, text.sites.elsewhere))),
    update(fleet) {
      const [said, kind] = contactOf(fleet.site);
      line.dataset.kind = kind;
      there.dataset.kind = kind;
      setText(contact, said);
      setText(lag, text.behind(siteLag(fleet.site)));
      setText(relay, text.sites.relayIs(relaysOf(fleet)));
    },
  };
}

function box(name, isOwn, hasSites) {
  const [state, rate, behind] = Array.from({ length: 3 }, () => h("span"));
  const relay = hasSites && h("small", { hidden: true }, text.sites.relay);
  const element = h("li", { class: isOwn ? "map-node own" : "map-node" }, behind, h("b", { class: "clipped", title: name }, outside(name)), isOwn && h("small", null, text.thisNode), relay, state, rate);
  behind.className = "map-lag";
  state.className = "map-state";
  return {
    element,
    update({ about }, [said, kind]) {
      element.dataset.kind = kind;
      setText(state, said);
      setText(rate, kind === "good" && about ? text.perSecond(Math.round(about.redirectsPerSecond)) : "");
      setText(behind, about ? text.behind(format.duration(about.lagMillis / 1000)) : "–");
      behind.dataset.kind = (about?.lagMillis ?? 0) >= LAG_NOTED_MS ? "warn" : "";
      if (relay) {
        relay.hidden = about?.relay !== true;
      }
    },
  };
}
