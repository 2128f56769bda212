// Texts of alarms as sentences, as on the status page (src/api/admin/status/sentences.rs), and where they lead.

import { h } from "./dom.js";
import { sentence } from "./format.js";
import { alarmText as text } from "./strings-shell.js";

/** What has happened, and its cause or null: the node gives a clause, with a long cause in parentheses. */
export function alarmSentences(said) {
  const [problem, cause] = split(said);
  return [ended(problem), cause && ended(withoutParentheses(cause))];
}

/** A link to what to do about an alarm. */
export const runbookLink = (name) => h("a", { href: `/runbook/${encodeURIComponent(name)}`, target: "_blank" }, text.remedy);

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
