// Alarms: the active ones, and a folded list of those that are resolved.

import { badge, fill, h, outside } from "./dom.js";
import { relative, sentence, updateRelative } from "./format.js";
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

/** What has happened; below it, smaller, the cause that another program or a parser gives. The status page says the same. */
function alarmText(said) {
  const [problem, cause] = split(said);
  return [h("p", { class: "wrap" }, outside(ended(problem))), cause && h("p", { class: "soft small wrap" }, outside(ended(withoutParentheses(cause))))];
}

/** A clause as a sentence. */
const ended = (clause) => sentence(clause) + (/[.?!…]$/.test(clause) ? "" : ".");

/** A long cause in parentheses, which may have parentheses itself, and what is around it. */
function split(said) {
  const [, before, cause, after = ""] = /^([^()]+) \((.{30,})\)(; [^()]+)?$/.exec(said) ?? [];
  return cause !== undefined && isBalanced(cause) ? [before + after, cause] : [said, null];
}

/** Whether each parenthesis that closes has one before it that opens, and the other way round. */
function isBalanced(text) {
  let depth = 0;
  const isNeverBelow = [...text].every((sign) => {
    depth += sign === "(" ? 1 : sign === ")" ? -1 : 0;
    return depth >= 0;
  });
  return isNeverBelow && depth === 0;
}

/** Writes a reason in parentheses at the end of a cause behind a colon. */
function withoutParentheses(cause) {
  const [, what, why] = /^(.*?) \((.*)\)$/.exec(cause) ?? [];
  return why !== undefined && isBalanced(why) ? `${what}: ${withoutParentheses(why)}` : cause;
}

function activeAlarm({ name, text: said, since }) {
  return h("li", { class: "alarm" }, badge(text.alarm, "bad"), h("div", null, alarmText(said),
    h("p", { class: "alarm-when wrap" }, h("code", null, name), text.since, relative(since), " · ", h("a", { href: `/runbook/${name}`, target: "_blank" }, text.remedy))));
}

function clearedAlarm({ name, text: said, since, cleared }) {
  return h("li", { class: "alarm over" }, badge(text.resolved), h("div", null, alarmText(said),
    h("p", { class: "alarm-when" }, h("code", null, name), text.since, relative(since), text.resolvedAt, relative(cleared))));
}
