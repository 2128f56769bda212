// Import: many links from a file, first tried, then made, with a report of what was refused.

import { csvLine } from "./csv.js";
import { badge, button, card, clipped, emptyState, fill, h, outside, pageHead, pageLink, regionTable, row, setText } from "./dom.js";
import * as format from "./format.js";
import { readFile } from "./import-rows.js";
import { runImport } from "./import-run.js";
import { tiles } from "./parts.js";

const SHOWN = 10;
const EXAMPLE = "longUrl,customSlug,title,tags,validUntil\nhttps://example.org/summer,summer,Summer sale,sale|2026,2026-12-31T23:00:00Z\n";

export async function show(main, { signal }) {
  const page = { signal, file: null, running: null, host: h("div", { class: "stack" }) };
  main.append(pageHead("Import", pageLink("/admin/links", "To all links", { class: "button" })), chooser(page), page.host);
  showHelp(page);
  return () => page.running?.abort();
}

/** A field for a file, which can be dropped there, too. */
function chooser(page) {
  const input = h("input", { type: "file", id: "file", accept: ".csv,.ndjson,.jsonl,.json,text/csv,application/x-ndjson", onchange: () => input.files[0] && take(page, input.files[0]) });
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
    if (file) {
      take(page, file);
    }
  });
  return card("File", {}, area);
}

function showHelp(page) {
  const url = URL.createObjectURL(new Blob([EXAMPLE], { type: "text/csv" }));
  page.signal.addEventListener("abort", () => URL.revokeObjectURL(url));
  fill(page.host, emptyState("Many links at once",
    "A CSV names the fields of the API in its first line: longUrl, customSlug, title, tags (with | between them), domain, validSince, validUntil, maxVisits and so on. NDJSON has a JSON object a line, as exports do.",
    h("a", { class: "button", href: url, download: "example.csv" }, "An example")));
}

async function take(page, file) {
  page.running?.abort();
  fill(page.host, h("p", { class: "soft", role: "status" }, `Reading ${file.name}…`));
  try {
    page.file = { name: file.name, ...readFile(file.name, await file.text()) };
    showFile(page);
  } catch (error) {
    fill(page.host, emptyState("This file cannot be read", error.message));
  }
}

/** What was understood, before anything is sent. */
function showFile(page) {
  const { name, kind, columns, rows } = page.file;
  const good = rows.filter((one) => one.error === undefined);
  const unknown = columns.filter((column) => column.field === undefined);
  if (rows.length === 0) {
    fill(page.host, emptyState("There is nothing in this file", kind === "CSV" ? "Its first line names the fields, and no other line follows." : "It has no lines."));
    return;
  }
  const begin = (label, isDry, props) => button(label, () => run(page, good, isDry), props);
  const out = h("div", { class: "stack" });
  page.out = out;
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

/** Sends the rows, and shows how far it is. */
async function run(page, rows, isDry) {
  const running = new AbortController();
  page.running = running;
  page.dry.disabled = page.make.disabled = true;
  const bar = h("progress", { max: rows.length, value: 0, "aria-label": "Lines done" });
  const said = h("p", { role: "status" }, "Begun…");
  const stop = button("Stop", () => running.abort());
  fill(page.out, card(isDry ? "Dry run" : "Import", {}, bar, h("p", { class: "line" }, said, stop)));
  const began = performance.now();
  const result = await runImport(rows, {
    isDry,
    signal: AbortSignal.any([running.signal, page.signal]),
    told({ done, made, refused }) {
      bar.value = done;
      const rate = done / ((performance.now() - began) / 1000);
      setText(said, `${format.number(done)} of ${format.number(rows.length)} lines, ${format.number(made)} ${isDry ? "good" : "made"}, ${format.number(refused)} refused, ${format.number(rate)} a second`);
    },
  });
  page.running = null;
  if (!page.signal.aborted) {
    showResult(page, rows, result, { isDry, seconds: (performance.now() - began) / 1000 });
  }
}

function showResult(page, rows, { refused, left, error }, { isDry, seconds }) {
  const done = rows.length - left.length;
  const made = done - refused.length;
  const unread = page.file.rows.filter((one) => one.error !== undefined);
  const title = left.length > 0 ? "Stopped" : isDry ? "Tried: nothing was made" : "Done";
  const why = error && error.name !== "AbortError" ? `${error.detail ?? error.message} ` : "";
  fill(page.out,
    card(title, {},
      h("p", { role: "status", class: "import-done" }, `${format.count(made, "link")} ${isDry ? "would be made" : made === 1 ? "was made" : "were made"}, ${format.number(refused.length)} refused, in ${format.duration(Math.max(seconds, 0.001))}.`),
      left.length > 0 && h("p", { class: "notice warn" }, `${why}${format.count(left.length, "line")} from line ${left[0].line} on ${left.length === 1 ? "has" : "have"} no answer. Some of the first ${format.number(Math.min(left.length, 2_000))} may have been made all the same: those with an ending of their own are refused when they come again.`),
      h("p", { class: "line" }, left.length > 0 && button("Go on with the rest", () => run(page, left, isDry), { kind: "primary" }),
        !isDry && made > 0 && pageLink("/admin/links", "See the links", { class: "button" }))),
    refused.length > 0 && refusedCard("Refused lines", refused, page.file.name),
    unread.length > 0 && refusedCard("Lines that cannot be read", unread, page.file.name));
  page.dry.disabled = false;
  page.make.disabled = !isDry;
}

/** The first of these lines, and all of them as a file. */
function refusedCard(title, refused, name) {
  const report = () => {
    const pieces = [csvLine(["line", "reason", "content"]), ...refused.map(({ line, error, text }) => csvLine([line, error, text]))];
    const url = URL.createObjectURL(new Blob(pieces, { type: "text/csv" }));
    h("a", { href: url, download: `${name}-refused.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  };
  const rows = refused.slice(0, 100).map(({ line, error, text }) => row({ content: String(line), class: "num" }, { content: outside(error), class: "wrap" }, { content: clipped(text ?? ""), class: "fluid" }));
  const columns = [{ title: "Line", class: "num" }, { title: "Reason" }, { title: "Content" }];
  return card(title, { beside: button("Download the report", report) },
    refused.length > rows.length && h("p", { class: "soft" }, `The first ${rows.length} of ${format.number(refused.length)}; the report has all of them.`),
    regionTable(`${title}, one a row`, columns, rows).element);
}
