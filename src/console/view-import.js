// Import: many links from a file, first tried, then made, with a report of what was refused.

import { confirmDialog } from "./dialog.js";
import { badge, button, card, clipped, emptyState, fill, h, outside, pageHead, pageLink, regionTable, row, setText } from "./dom.js";
import * as format from "./format.js";
import { refusedCard } from "./import-report.js";
import { decode, readFile } from "./import-rows.js";
import { ImportRun } from "./import-run.js";
import { tiles } from "./parts.js";

const SHOWN = 10;
/** A browser holds the whole file, and some times over. */
const FILE_MAX_BYTES = 100 * 1024 * 1024;
const EXAMPLE = "longUrl,customSlug,title,tags,validUntil\nhttps://example.org/summer,summer,Summer sale,sale|2026,2026-12-31T23:00:00Z\n";

export async function show(main, { signal }) {
  const page = { signal, file: null, running: null, host: h("div", { class: "stack" }) };
  page.chooser = chooser(page);
  main.append(pageHead("Import", pageLink("/admin/links", "To all links", { class: "button" })), page.chooser.element, page.host);
  showHelp(page);
  const onUnload = (event) => page.running && event.preventDefault();
  window.addEventListener("beforeunload", onUnload, { signal });
  return { leave: () => page.running?.abort(), mayLeave: () => !page.running || mayBreakOff() };
}

function mayBreakOff() {
  return confirmDialog("Leave while it runs?", "The import ends where it is: what was made stays, and the report of refused lines is lost.", { action: "Leave" });
}

/** A field for a file, which can be dropped there, too. */
function chooser(page) {
  const input = h("input", {
    type: "file", id: "file", accept: ".csv,.tsv,.ndjson,.jsonl,.json,text/csv,application/x-ndjson",
    onchange: () => input.files[0] && take(page, input.files[0]),
    // The same file again, changed meanwhile, is a choice as well.
    onclick: () => { input.value = ""; },
  });
  const area = h("div", { class: "drop" }, h("label", { for: "file" }, "CSV or NDJSON file"), input, h("p", { class: "soft" }, "Choose it, or drop it here. Nothing is made before you say so."));
  const over = (isOver) => (event) => {
    event.preventDefault();
    area.classList.toggle("over", isOver);
  };
  area.addEventListener("dragover", over(true));
  area.addEventListener("dragleave", over(false));
  area.addEventListener("drop", (event) => {
    over(false)(event);
    const [file] = event.dataTransfer.files;
    if (file && !input.disabled) {
      take(page, file);
    }
  });
  return { element: card("File", {}, area), setOff: (isOff) => { input.disabled = isOff; } };
}

function showHelp(page) {
  const url = URL.createObjectURL(new Blob([EXAMPLE], { type: "text/csv" }));
  page.signal.addEventListener("abort", () => URL.revokeObjectURL(url));
  fill(page.host, emptyState("Many links at once",
    "A CSV names the fields of the API in its first line: longUrl, customSlug, title, tags (with | between them), domain, validSince, validUntil, maxVisits and so on. NDJSON has a JSON object a line, as exports do. A link without validUntil ends as links.default_ttl says, and one with a code of its own is not private: `carom import` moves links as they are.",
    h("a", { class: "button", href: url, download: "example.csv" }, "An example")));
}

async function take(page, file) {
  page.taken = file;
  fill(page.host, h("p", { class: "soft", role: "status" }, "Reading ", outside(file.name), "…"));
  try {
    if (file.size > FILE_MAX_BYTES) {
      throw new Error(`It has ${format.bytes(file.size)}, and a browser is not the place for more than ${format.bytes(FILE_MAX_BYTES)}. Split it, or send it as NDJSON to POST /rest/v3/short-urls/bulk.`);
    }
    const text = decode(await file.arrayBuffer());
    if (page.taken === file && !page.signal.aborted) {
      page.file = { name: file.name, ...readFile(file.name, text) };
      showFile(page);
    }
  } catch (error) {
    if (page.taken === file && !page.signal.aborted) {
      fill(page.host, emptyState(["“", outside(file.name), "” cannot be read"], outside(error.message)));
    }
  }
}

/** What was understood, before anything is sent. */
function showFile(page) {
  const { name, kind, columns, rows } = page.file;
  const good = rows.filter((one) => one.error === undefined);
  const unknown = columns.filter((column) => column.field === undefined);
  const begin = (label, isDry, props) => button(label, () => advance(page, new ImportRun(good, { isDry })), props);
  const out = h("div", { class: "stack" });
  page.out = out;
  // What was read of the file, and how far it is.
  page.host.dataset.work = "import";
  page.dry = begin("Try it (dry run)", true);
  page.make = begin(`Make ${format.count(good.length, "link")}`, false, { kind: "primary" });
  [page.dry, page.make].forEach((one) => {
    one.disabled = good.length === 0;
  });
  fill(page.host,
    card(outside(name), { beside: badge(kind) },
      tiles([["Lines", format.number(rows.length)], ["Can be sent", format.number(good.length)], ["Cannot be read", format.number(rows.length - good.length)]]),
      unknown.length > 0 && h("p", { class: "notice warn" }, "Nobody knows the ", unknown.length === 1 ? "column " : "columns ", unknown.map((column, index) => [index > 0 && ", ", h("code", null, outside(column.title))]), ": what stands there is left out."),
      preview(good), h("p", { class: "line" }, page.dry, page.make)),
    out);
  const unread = rows.filter((one) => one.error !== undefined);
  if (unread.length > 0) {
    fill(out, refusedCard("Lines that cannot be read", unread, name));
  }
}

function preview(rows) {
  const names = [...new Set(rows.slice(0, SHOWN).flatMap(({ fields }) => Object.keys(fields)))];
  const cells = rows.slice(0, SHOWN).map(({ line, fields }) => row({ content: String(line), class: "num" }, ...names.map((name) => ({ content: cell(fields[name]), class: "fluid-cell" }))));
  const columns = [{ title: "Line", class: "num" }, ...names.map((name) => ({ title: name }))];
  return rows.length > 0 && regionTable(`The first ${Math.min(SHOWN, rows.length)} lines`, columns, cells).element;
}

const cell = (value) => (value === undefined || value === null ? "" : clipped(Array.isArray(value) ? value.join(", ") : String(value)));

/** Sends what is left of a run, and shows how far it is. */
async function advance(page, run) {
  const running = new AbortController();
  page.running = running;
  let isStopping = false;
  page.dry.disabled = page.make.disabled = true;
  page.chooser.setOff(true);
  const bar = h("progress", { max: run.rows.length, value: run.at, "aria-label": "Lines done" });
  const said = h("p", { role: "status" }, "Begun…");
  // What was sent is answered before it stops, unless that takes too long for somebody.
  const stop = button("Stop", () => {
    if (isStopping) {
      running.abort();
    }
    isStopping = true;
    setText(stop, "Stop at once");
  });
  fill(page.out, card(run.isDry ? "Dry run" : "Import", {}, bar, h("p", { class: "line" }, said, stop)));
  stop.focus();
  const error = await run.advance({
    signal: AbortSignal.any([running.signal, page.signal]),
    shouldStop: () => isStopping,
    told() {
      bar.value = run.at;
      setText(said, `${format.number(run.at)} of ${format.count(run.rows.length, "line")}, ${format.number(run.made)} ${run.isDry ? "good" : "made"}, ${format.number(run.refused.length)} refused, ${format.number(run.at / run.seconds)} a second`);
    },
  });
  page.running = null;
  if (!page.signal.aborted) {
    page.chooser.setOff(false);
    showResult(page, run, error);
  }
}

function showResult(page, run, error) {
  const { made, refused, left, isDry } = run;
  const unread = page.file.rows.filter((one) => one.error !== undefined);
  const title = left > 0 ? "Stopped" : isDry ? "Tried: nothing was made" : "Done";
  const head = card(title, {},
    h("p", { role: "status", class: "import-done" }, `${format.count(made, "link")} ${isDry ? "would be made" : made === 1 ? "was made" : "were made"}, ${format.number(refused.length)} refused, in ${format.duration(Math.max(run.seconds, 0.001))}.`),
    left > 0 && h("p", { class: "notice warn" }, outside(whatIsLeft(run, error))),
    h("p", { class: "line" }, left > 0 && button("Go on with the rest", () => advance(page, run), { kind: "primary" }),
      !isDry && made > 0 && pageLink("/admin/links", "See the links", { class: "button" })));
  fill(page.out, head,
    refused.length > 0 && refusedCard("Refused lines", refused, page.file.name),
    unread.length > 0 && refusedCard("Lines that cannot be read", unread, page.file.name));
  page.dry.disabled = false;
  page.make.disabled = !isDry;
  (head.querySelector("button, a") ?? (isDry ? page.make : page.dry)).focus();
}

/** Why lines are left, from which one on, and what is not known of them. */
function whatIsLeft({ left, next, unsure, isDry }, error) {
  const why = error && error.name !== "AbortError" ? `${error.detail ?? error.message} ` : "";
  const rest = `${format.count(left, "line")}, from line ${next.line} on, ${left === 1 ? "has" : "have"} not been answered.`;
  const maybe = ` Of the first ${format.number(unsure)} of them some may have been made all the same: those with an ending of their own are refused when they come again, the others are made twice.`;
  return `${why}${rest}${unsure > 0 && !isDry ? maybe : ""}`;
}
