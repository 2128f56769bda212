// What a client is called, from its `User-Agent`.

import { cut } from "./format.js";
import { visits as text } from "./strings-visits.js";

const BROWSERS = [["Edg/", "Edge"], ["OPR/", "Opera"], ["SamsungBrowser/", "Samsung Internet"], ["Firefox/", "Firefox"], ["FxiOS/", "Firefox"], ["CriOS/", "Chrome"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]];
const SYSTEMS = [["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Windows", "Windows"], ["Mac OS X", "macOS"], ["CrOS", "ChromeOS"], ["Linux", "Linux"]];

/** Crawlers name themselves after this word, other programs at the beginning, before a version. */
const NAMES = [/\bcompatible; ([^\s;/()]+)/, /^(?!Mozilla\/)([^\s;/()]+)\//];
const NAME_MAX = 30;

/** The browser and the system: "Firefox, Windows". Each browser names others as well, so the order decides. Of other programs, the name, or the beginning of what they send. */
export function agentName(userAgent) {
  const called = (names) => names.find(([word]) => userAgent.includes(word))?.[1];
  const program = () => NAMES.map((name) => name.exec(userAgent)?.[1]).find(Boolean) ?? (userAgent || text.unknownBrowser);
  return [called(BROWSERS) ?? cut(program(), NAME_MAX), called(SYSTEMS)].filter(Boolean).join(", ");
}
