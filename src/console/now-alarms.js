// Alarms: those that stand, and, folded, those that are over.

import { badge, fill, h, outside } from "./dom.js";
import { relative, updateRelative } from "./format.js";

/** The list of alarms: `{ element, update(status) }`. It is drawn anew only when an alarm comes or goes. */
export function alarmList() {
  const standing = h("ul", { class: "alarms" });
  const over = h("ul", { class: "alarms" });
  const summary = h("summary");
  const folded = h("details", { hidden: true }, summary, over);
  const element = h("section", { "aria-label": "Alarms", class: "stack" }, standing, folded);
  let said = null;
  const update = ({ alarms }) => {
    const now = JSON.stringify(alarms);
    if (now === said) {
      element.querySelectorAll("time").forEach(updateRelative);
      return;
    }
    said = now;
    const [up, cleared] = [alarms.filter((alarm) => alarm.cleared === null), alarms.filter((alarm) => alarm.cleared !== null)];
    fill(standing, up.length > 0 ? up.map(standingAlarm) : h("li", { class: "calm" }, badge("No alarms", "good")));
    fill(over, cleared.map(clearedAlarm));
    fill(summary, cleared.length === 1 ? "1 alarm that is over" : `${cleared.length} alarms that are over`);
    folded.hidden = cleared.length === 0;
  };
  return { element, update };
}

function standingAlarm({ name, text, since }) {
  return h("li", { class: "alarm" }, badge("Alarm", "bad"), h("div", null, h("p", { class: "wrap" }, outside(text)),
    h("p", { class: "alarm-when" }, h("code", null, name), " since ", relative(since))));
}

function clearedAlarm({ name, text, since, cleared }) {
  return h("li", { class: "alarm over" }, badge("Over"), h("div", null, h("p", { class: "wrap" }, outside(text)),
    h("p", { class: "alarm-when" }, h("code", null, name), " since ", relative(since), ", over ", relative(cleared))));
}
