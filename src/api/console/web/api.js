// Requests to the node, under the session of the console.

import { errors, forms } from "./strings-shell.js";

const TIMEOUT_SECONDS = 30;
/** Some paths are pages as well: who does not ask for HTML gets the data. */
const ACCEPTED = "application/json, application/x-ndjson, application/problem+json";

let session = null;

/** The session as the node last told it, or `null` before that. */
export function currentSession() {
  return session;
}

let onRights = () => {};

/** Sets a function that is called after a session with other rights has replaced the last one. */
export function whenRightsChange(changed) {
  onRights = changed;
}

/** What decides which links a key may see, and what it may do. After a restart, the node may have other links. */
const rightsOf = ({ role, domains, app, sharedHome }) => JSON.stringify([role, domains, app, sharedHome]);

/** Takes up a session: every change carries its token. */
export function setSession(told) {
  const hasOtherRights = session !== null && rightsOf(session) !== rightsOf(told);
  session = told;
  if (hasOtherRights) {
    onRights();
  }
}

/** The headers of a request that changes something. */
function changeHeaders() {
  return { "X-CSRF-Token": session?.csrf ?? "" };
}

/** What the node, or the way to it, said no with. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? errors.status(status));
    this.name = "ApiError";
    this.status = status;
    this.title = problem.title ?? errors.failed;
    this.detail = problem.detail ?? this.message;
    this.type = problem.type ?? "about:blank";
    this.fields = problem.invalidElements ?? [];
    this.retryAfter = problem.retryAfter ?? null;
    this.problem = problem;
  }

  /** What is wrong with each field: `[[field, reason], …]`. */
  get reasons() {
    if (this.problem.customSlug !== undefined) {
      return [["customSlug", forms.slugTaken(this.problem.domain)]];
    }
    const named = new Map((this.problem.invalidReasons ?? []).map(({ element, reason }) => [element, forms.ofReason[reason]]));
    return splitReasons(this.fields, this.detail).map(([field, reason]) => [field, named.get(field) ?? reason]);
  }
}

/** The node says "field reason; field reason" in the order of its fields; a reason may hold a semicolon itself. */
function splitReasons(fields, detail) {
  let rest = detail;
  return fields.map((field, index) => {
    const own = rest.startsWith(`${field} `) ? rest.slice(field.length + 1) : rest;
    const next = fields[index + 1] === undefined ? -1 : own.indexOf(`; ${fields[index + 1]} `);
    rest = next < 0 ? rest : own.slice(next + 2);
    return [field, next < 0 ? own : own.slice(0, next)];
  });
}

/** The problem object of an answer, or what can be said without one. */
async function errorOf(response) {
  const text = await response.text().catch(() => "");
  try {
    return new ApiError(response.status, JSON.parse(text));
  } catch {
    return new ApiError(response.status, { title: errors.unexpected, detail: errors.unexpectedText(response.status, response.statusText) });
  }
}

let signIn = () => new Promise(() => {});

let renew = async () => false;

/**
 * Sets what is done when the session is over, a function whose promise resolves when somebody is signed in again; and what
 * reloads the session until a signal ends that, and resolves to whether there is one: another page of the browser may have replaced it.
 */
export function whenSessionEnds({ over, replaced }) {
  [signIn, renew] = [over, replaced];
}

/** A path with query parameters, behind those that it has; lists are repeated, and what is empty is left out. */
export function withQuery(path, query = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "" && one !== false) {
        params.append(name, one);
      }
    }
  }
  const text = params.toString();
  return text === "" ? path : `${path}${path.includes("?") ? "&" : "?"}${text}`;
}

/** The key of a link in maps: two domains may have the same code. */
export const keyOf = ({ shortCode, domain }) => `${domain ?? ""}/${shortCode}`;

/** A short code as a part of a path. `bulk` and `export` are names of the API there, unless their first letter is escaped. */
const inPath = (code) => (code === "bulk" ? "%62ulk" : code === "export" ? "%65xport" : encodeURIComponent(code));

/** The path of a link in the API. */
export function linkPath(link, rest = "") {
  return withQuery(`/rest/v3/short-urls/${inPath(link.shortCode)}${rest}`, { domain: link.domain });
}

/**
 * Sends a request and gives its answer; throws an ApiError unless it is a good one. `timeout` is in seconds, 0 for none, and
 * ends with the head of the answer: a body may take its time. `signal` ends the body, too.
 */
export async function send(method, path, { body, headers = {}, signal, timeout = TIMEOUT_SECONDS, isAgain = false } = {}) {
  const late = new AbortController();
  const timer = timeout > 0 ? setTimeout(() => late.abort(), timeout * 1000) : undefined;
  const changes = method === "GET" || method === "HEAD" ? {} : changeHeaders();
  const ends = AbortSignal.any([late.signal, ...(signal ? [signal] : [])]);
  try {
    const response = await fetch(path, { method, body, headers: { Accept: ACCEPTED, ...changes, ...headers }, signal: ends });
    if (response.status === 401) {
      clearTimeout(timer);
      // Another page of the browser may have signed in since the request was sent.
      if (isAgain || !(await renewInTime())) {
        await signIn();
      }
      return await send(method, path, { body, headers, signal, timeout, isAgain: true });
    }
    if (response.status === 403 && "X-CSRF-Token" in changes && (await isReplaced(changes))) {
      clearTimeout(timer);
      return await send(method, path, { body, headers, signal, timeout });
    }
    if (response.status === 403 && !("X-CSRF-Token" in changes)) {
      // The browser may have the session of another key by now.
      renew().catch(() => {});
    }
    if (!response.ok) {
      throw await errorOf(response);
    }
    return response;
  } catch (error) {
    throw explained(error, late.signal.aborted, timeout);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether the browser has a session now; false, too, if the node does not say so in time. */
function renewInTime() {
  return renew(AbortSignal.timeout(TIMEOUT_SECONDS * 1000)).catch(() => false);
}

/** Whether the session is another one now than that for which a change was refused. */
async function isReplaced(before) {
  await renewInTime();
  return changeHeaders()["X-CSRF-Token"] !== before["X-CSRF-Token"];
}

function explained(error, isLate, timeout) {
  if (error instanceof ApiError) {
    return error;
  }
  if (isLate) {
    return new ApiError(0, { title: errors.timeout, detail: errors.timeoutText(timeout) });
  }
  return error.name === "AbortError" ? error : unreachable();
}

/** What is said where no answer came at all. */
export function unreachable() {
  return new ApiError(0, { title: errors.unreachable, detail: errors.unreachableText });
}

/** A JSON request: `options` are those of `send`, plus `query`, and `body` as a value. */
export async function request(method, path, { query, body, ...options } = {}) {
  const json = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const response = await send(method, withQuery(path, query), { ...options, ...json });
  const text = await response.text();
  return text === "" ? null : JSON.parse(text);
}

export const get = (path, options) => request("GET", path, options);
export const post = (path, body, options) => request("POST", path, { body, ...options });
export const put = (path, body, options) => request("PUT", path, { body, ...options });
export const patch = (path, body, options) => request("PATCH", path, { body, ...options });
export const del = (path, options) => request("DELETE", path, options);

/** The lines of a streamed NDJSON answer, parsed, in batches as they come. */
export async function* lineBatches(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : unreachable();
    });
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    const batch = lines.filter((line) => line.trim() !== "").map((line) => JSON.parse(line));
    if (batch.length > 0) {
      yield batch;
    }
    if (done) {
      return;
    }
  }
}
