// Alarms: the active ones, and a folded list of those that are resolved.

import { badge, fill, h, outside } from "./dom.js";
import { relative, updateRelative } from "./format.js";
import { runbookLink } from "./parts.js";
import { alarms as text } from "./strings-traffic.js";

/** The list of alarms: `{ element, update(status) }`. It is redrawn only when an alarm is raised or cleared. */
export function alarmList() {
  const active = h("ul", { class: "alarms" });
  const over = h("ul", { class: "alarms" });
  const summary = h("summary");
  const folded = h("details", { hidden: true }, summary, over);
  const element = h("section", { "aria-label": text.title, class: "stack", hidden: true }, active, folded);
  let said = null;
  const update = ({ alarms }) => {
    const now = JSON.stringify(alarms);
    if (now === said) {
      element.querySelectorAll("time").forEach(updateRelative);
      return;
    }
    said = now;
    const [up, cleared] = [alarms.filter((alarm) => alarm.cleared === null), alarms.filter((alarm) => alarm.cleared !== null)];
    active.hidden = up.length === 0;
    fill(active, up.map(activeAlarm));
    fill(over, cleared.map(clearedAlarm));
    fill(summary, text.resolvedMany(cleared.length));
    folded.hidden = cleared.length === 0;
    // Empty, it would widen the gap between its neighbours.
    element.hidden = alarms.length === 0;
  };
  return { element, update };
}

/** What has happened; below it, smaller, the cause that another program or a parser gives. */
function alarmText({ message, cause }) {
  return [h("p", { class: "wrap" }, outside(message)), cause && h("p", { class: "soft small wrap" }, outside(cause))];
}

function activeAlarm(alarm) {
  const { name, remedy, since } = alarm;
  return h("li", { class: "alarm" }, badge(text.alarm, "bad"), h("div", null, alarmText(alarm),
    h("p", { class: "alarm-when wrap" }, h("code", null, name), text.since, relative(since)),
    h("p", { class: "alarm-remedy wrap" }, remedy && [outside(remedy), " "], runbookLink(name))));
}

function clearedAlarm(alarm) {
  const { name, since, cleared } = alarm;
  return h("li", { class: "alarm over" }, badge(text.resolved), h("div", null, alarmText(alarm),
    h("p", { class: "alarm-when" }, h("code", null, name), text.since, relative(since), text.resolvedAt, relative(cleared))));
}
