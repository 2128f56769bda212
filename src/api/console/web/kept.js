// What this browser remembers between visits, such as saved filters. Without storage, the console works as if it were empty.

const PREFIX = "carom-console.";

/** What was kept under a name, if `isGood` says that it is of use; else `usual`. */
export function kept(name, isGood, usual) {
  try {
    const value = JSON.parse(localStorage.getItem(PREFIX + name));
    return isGood(value) ? value : usual;
  } catch {
    return usual;
  }
}

/** Keeps a value; says whether it could be kept. */
export function keep(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
