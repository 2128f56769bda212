// What short URLs of each domain start with.

import { currentSession, get } from "./api.js";

/** By the name of the domain; `null` is the default one. The settings say it, except for the default domain. */
export function basesIn(settings) {
  const served = settings.find((one) => one.name === "domains.serve")?.value ?? "";
  const urls = served.split(/[\s,"[\]]+/).filter((word) => /^https?:\/\//.test(word) && URL.canParse(word));
  return new Map([[null, currentSession().baseUrl], ...urls.map((url) => [new URL(url).hostname, url.replace(/\/$/, "")])]);
}

/** The beginnings by domain, from the settings of the node. */
export async function baseUrls(signal) {
  const { settings } = await get("/admin/api/settings", { signal });
  return basesIn(settings);
}
