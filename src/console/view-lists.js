// Host lists: where links may lead and where not, and whether a URL would be accepted.

import { post } from "./api.js";
import { badge, card, errorState, facts, fill, h, outside, pageHead, setText } from "./dom.js";
import { field } from "./field.js";
import * as format from "./format.js";
import { alarmNotes, followStatus, settingLink } from "./parts.js";

const LISTS = [
  { key: "allowList", title: "Allow list", setting: "allow", none: "Links may lead to any host that is not blocked.", some: "New links may lead to these hosts alone." },
  { key: "blockList", title: "Block list", setting: "block", none: "No host is blocked.", some: "No new link leads to these hosts, and nobody is led there by links that are there already." },
];
const SAID = { "no list": "no list", allowed: "on it", "not allowed": "not on it", blocked: "on it", "not blocked": "not on it" };

export async function show(main, { signal }) {
  const host = h("div", { class: "stack" });
  main.append(pageHead("Host lists"), checkCard(signal), host);
  return followStatus(host, ({ allowList, blockList, alarms }) => [allowList, blockList, alarms.filter((alarm) => alarm.cleared === null)], (status) => ({
    content: [alarmNotes(status, ["allow_list", "block_list"]), h("div", { class: "cards" }, LISTS.map((list) => listCard(list, status[list.key])))],
  }));
}

function listCard({ title, setting, none, some }, list) {
  const settings = h("p", { class: "soft" }, "Set by ", settingLink(`${setting}.hosts`), " and ", settingLink(`${setting}.source`), ".");
  if (list === null) {
    return card(title, { beside: badge("not used") }, h("p", null, none), settings);
  }
  return card(title, { beside: badge("in use", "good") }, h("p", null, some), facts([
    ["In the settings", format.count(list.static, "entry", "entries")],
    ["From the source", format.count(list.dynamic, "entry", "entries")],
    ["Source last read", list.read ? format.relative(list.read) : "never"],
  ]), settings);
}

/** "Would this URL be accepted?", asked as one types. */
function checkCard(signal) {
  const verdict = h("div", { class: "verdict", role: "status" }, h("p", { class: "soft" }, "Type or paste a long URL to see what would become of it."));
  let under = null;
  let timer;
  const ask = async () => {
    under?.abort();
    const own = new AbortController();
    under = own;
    const longUrl = url.input.value.trim();
    if (longUrl === "") {
      fill(verdict, h("p", { class: "soft" }, "Type or paste a long URL to see what would become of it."));
      return;
    }
    try {
      const told = await post("/admin/api/check-url", { longUrl }, { signal: AbortSignal.any([own.signal, signal]) });
      fill(verdict, verdictOf(told));
    } catch (error) {
      if (error.name !== "AbortError") {
        fill(verdict, errorState(error, ask));
      }
    }
  };
  const url = field({ name: "longUrl", label: "Would this URL be accepted?", inputmode: "url", autocomplete: "off", spellcheck: "false", placeholder: "https://", oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(ask, 250);
  } });
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    clearTimeout(timer);
    ask();
  } }, url.element);
  return card("Try a URL", {}, form, verdict);
}

function verdictOf({ accepted, longUrl, reasons, allowList, blockList }) {
  const said = h("p", { class: `verdict-said ${accepted ? "good" : "bad"}` });
  setText(said, accepted ? "It would be accepted." : "It would be refused.");
  return [
    said,
    reasons.length > 0 && h("ul", null, reasons.map((reason) => h("li", { class: "wrap" }, outside(reason)))),
    facts([
      ["Stored as", longUrl ? outside(longUrl, { class: "long" }) : "–"],
      ["Allow list", SAID[allowList] ?? allowList],
      ["Block list", SAID[blockList] ?? blockList],
    ]),
  ];
}
