// What keys may do, and how that is told.

/** Every role, the one that allows least first: `[name, what it allows]`. */
export const ROLES = [
  ["read", "Reads the links of its own app: single ones, lists, visits and exports."],
  ["write-own", "Makes links, and changes and deletes those of its own app. The usual choice for a program."],
  ["write-all", "Reads, changes and deletes the links of all apps, and sees the visits of all."],
  ["admin", "Manages apps and keys, too, and signs in to this console."],
];

/** What a role allows. */
export function roleText(role) {
  return ROLES.find(([name]) => name === role)?.[1] ?? "";
}

/** What has become of a key: `[text, kind of badge]`. */
export function stateOf(key) {
  if (key.revoked) {
    return ["revoked", "bad"];
  }
  return key.valid ? ["valid", "good"] : ["ended", ""];
}
