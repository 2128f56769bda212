// Roles and states of keys, in words.

import { apps, roles } from "./strings-access.js";

/** What a role allows. */
export function roleText(role) {
  return roles.find(([name]) => name === role)?.[1] ?? "";
}

/** What has become of a key: `[text, kind of badge]`. */
export function stateOf(key) {
  if (key.revoked) {
    return [apps.states.revoked, "bad"];
  }
  return key.valid ? [apps.states.valid, "good"] : [apps.states.ended, ""];
}
