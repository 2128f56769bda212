// What a client is called, from its `User-Agent`.

import { visits as text } from "./strings-visits.js";

const BROWSERS = [["Edg/", "Edge"], ["OPR/", "Opera"], ["SamsungBrowser/", "Samsung Internet"], ["Firefox/", "Firefox"], ["FxiOS/", "Firefox"], ["CriOS/", "Chrome"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]];
const SYSTEMS = [["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Windows", "Windows"], ["Mac OS X", "macOS"], ["CrOS", "ChromeOS"], ["Linux", "Linux"]];

/** The browser and the system: "Firefox, Windows". Each browser names others as well, so the order decides. */
export function agentName(userAgent) {
  const called = (names) => names.find(([word]) => userAgent.includes(word))?.[1];
  const browser = called(BROWSERS);
  return [browser ?? (userAgent.slice(0, 30) || text.unknownBrowser), called(SYSTEMS)].filter(Boolean).join(", ");
}
