// The picture of a fleet: Redis, and below it the nodes, each on a line that says how far behind it is.

import { card, h, outside, setText } from "./dom.js";
import * as format from "./format.js";
import { fleet as text } from "./strings-access.js";

/** A lag that people would notice: a link that was created elsewhere is missing for that long. */
const LAG_NOTED_MS = 2_000;

/** The card: `{ content, update(status) }`. `stateOf(node, status)` gives `[text, kind]`. */
export function fleetMap(status, stateOf) {
  const own = status.fleet.node;
  const redis = h("div", { class: "map-redis" }, h("b", null, text.redis), h("span"));
  const nodes = new Map(status.fleet.nodes.map(({ node }) => [node, box(node, node === own)]));
  const list = h("ul", { class: "map-nodes", "aria-label": text.nodesLabel }, [...nodes.values()].map((one) => one.element));
  return {
    content: card(text.map, {}, h("div", { class: "map" }, redis, list)),
    update(now) {
      redis.dataset.kind = now.redis.connected ? "good" : "bad";
      setText(redis.lastChild, now.redis.connected ? text.connected : text.disconnected);
      now.fleet.nodes.forEach((one) => nodes.get(one.node).update(one, stateOf(one, now)));
    },
  };
}

function box(name, isOwn) {
  const [state, rate, behind] = Array.from({ length: 3 }, () => h("span"));
  const element = h("li", { class: isOwn ? "map-node own" : "map-node" }, behind, h("b", { class: "clipped", title: name }, outside(name)), isOwn && h("small", null, text.thisNode), state, rate);
  behind.className = "map-lag";
  return {
    element,
    update({ about }, [said, kind]) {
      element.dataset.kind = kind;
      setText(state, said);
      setText(rate, kind === "good" && about ? text.perSecond(format.number(about.redirectsPerSecond)) : "");
      setText(behind, about ? text.behind(format.duration(about.lagMillis / 1000)) : "–");
      behind.dataset.kind = (about?.lagMillis ?? 0) >= LAG_NOTED_MS ? "warn" : "";
    },
  };
}
