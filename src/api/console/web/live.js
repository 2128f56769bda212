// The live status of the node: one event stream for the whole console, shared by all who listen.

import { get, setSession } from "./api.js";

const PATH = "/admin/api/events";
const SILENCE_MS = 8_000;
const WAITS_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

/**
 * Follows a stream of server-sent events. `onEvent(name, data)` gets each one, `onState` "connecting", "live" or "lost".
 * A browser holds few connections to one host, so a page that nobody sees gives its own back.
 */
function events(path, names, { onEvent, onState }) {
  let source = null;
  let timer;
  let failures = 0;
  let isOver = false;
  const hush = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const lose = () => {
    hush();
    if (isOver) {
      return;
    }
    onState("lost");
    timer = setTimeout(retry, WAITS_MS[Math.min(failures, WAITS_MS.length - 1)]);
    failures += 1;
  };
  const retry = async () => {
    // An event stream does not tell why it ended: the session does, and leads to the sign-in page if it is over. A session of
    // another key ends the stream for good, unless that key may follow it.
    try {
      setSession(await get("/admin/api/session"));
      open();
    } catch {
      lose();
    }
  };
  const heard = (event) => {
    failures = 0;
    clearTimeout(timer);
    timer = setTimeout(lose, SILENCE_MS);
    onState("live");
    onEvent(event.type, JSON.parse(event.data));
  };
  const open = () => {
    hush();
    if (document.hidden || isOver) {
      return;
    }
    source = new EventSource(path);
    names.forEach((name) => source.addEventListener(name, heard));
    source.addEventListener("error", lose);
    timer = setTimeout(lose, SILENCE_MS);
  };
  const seen = () => {
    if (document.hidden) {
      hush();
    } else {
      onState("connecting");
      open();
    }
  };
  document.addEventListener("visibilitychange", seen);
  onState("connecting");
  open();
  return {
    close() {
      isOver = true;
      hush();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}

const listeners = new Set();
let last = null;
let heardAt = null;
let state = "connecting";
let hasEnded = false;

function tell(listener) {
  listener({ state: hasEnded ? "ended" : state, status: last, heardAt });
}

/** Says whether the session has ended: then the connection is fine, but the node tells nothing before somebody signs in again. */
export function setSessionEnded(isEnded) {
  if (hasEnded !== isEnded) {
    hasEnded = isEnded;
    listeners.forEach(tell);
  }
}

let stream = null;

/** Begins to follow the status, unless it is followed already. */
export function startLive() {
  stream ??= events(PATH, ["status"], {
    onEvent(_name, status) {
      last = status;
      heardAt = Date.now();
      listeners.forEach(tell);
    },
    onState(now) {
      if (now !== state) {
        state = now;
        listeners.forEach(tell);
      }
    },
  });
}

/** Stops following the status, which then is unknown. */
export function stopLive() {
  stream?.close();
  [stream, last] = [null, null];
}

/** Calls `listener({ state, status, heardAt })` now and with each second; `status` is null until the first came, at `heardAt`. `state` is "connecting", "live", "lost" or "ended". Returns what ends that. */
export function onLive(listener) {
  listeners.add(listener);
  tell(listener);
  return () => listeners.delete(listener);
}
