// Roles and states of keys, in words.

import { apps, roles } from "./strings-access.js";

/** The title of a role and what it allows; a role that this page does not know has its name as its title. */
export function roleWords(role) {
  const [, title = role, meaning = ""] = roles.find(([name]) => name === role) ?? [];
  return { title, meaning };
}

/** What has become of a key: `[text, kind of badge]`. */
export function stateOf(key) {
  if (key.revoked) {
    return [apps.states.revoked, "bad"];
  }
  return key.valid ? [apps.states.valid, "good"] : [apps.states.ended, ""];
}
