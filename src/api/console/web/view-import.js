// Import: many links from a file, with a dry run and a report of rejected lines.

import { badge, button, card, clipped, emptyState, fill, h, outside, pageHead, pageLink, regionTable, row, setText } from "./dom.js";
import { field } from "./field.js";
import * as format from "./format.js";
import { icon } from "./icons.js";
import { refusedCard } from "./import-report.js";
import { decode, readFile } from "./import-rows.js";
import { ImportRun } from "./import-run.js";
import { settingLink, snippet, tiles } from "./parts.js";
import { hasAllLinks } from "./rights.js";
import { fieldNames, text } from "./strings-import.js";
import { pages } from "./strings-shell.js";
import { toast } from "./toast.js";

const SHOWN = 10;
/** A browser holds the whole file, and some times over. */
const FILE_MAX_BYTES = 100 * 1024 * 1024;
const EXAMPLE = "url,slug,title,tags\nhttps://example.org/sale,sale,Sale,shop|2030\nhttps://example.org/jobs,,Jobs,\n";

/** The import of this browser tab, which goes on while other pages are shown; `null` before the first visit. */
let kept = null;

export async function show(main, { go }) {
  kept ??= newPage();
  const page = kept;
  page.go = go;
  main.append(pageHead(pages.import, pageLink("/admin/links", hasAllLinks() ? text.toList : pages.links, { class: "button" })), page.chooser.element, page.host);
  return () => {
    if (page.running) {
      tellElsewhere(page, text.goesOn);
    }
  };
}

function newPage() {
  const page = { file: null, running: null, host: h("div", { class: "stack" }) };
  page.chooser = chooser(page);
  fill(page.host, help());
  // Only closing the tab ends an import.
  window.addEventListener("beforeunload", (event) => page.running && event.preventDefault());
  return page;
}

/** Says on another page what the import does, with the way to it. */
function tellElsewhere(page, said) {
  toast(said, { seconds: 10, action: { name: "show-import", label: text.show, run: () => page.go("/admin/import") } });
}

/** Marks the document while an import runs: a new sign-in then happens on the page. */
function markWork(page, controller) {
  page.running = controller;
  if (controller) {
    document.body.dataset.work = "import";
  } else {
    delete document.body.dataset.work;
  }
}

/** A field for a file, which can be dropped there, too. It is lower once there is a file, and off while an import runs. */
function chooser(page) {
  const input = h("input", {
    type: "file", id: "file", accept: ".csv,.tsv,.ndjson,.jsonl,.json,text/csv,application/x-ndjson",
    onchange: () => input.files[0] && take(page, input.files[0]),
    // The same file again, changed meanwhile, is a choice as well.
    onclick: () => { input.value = ""; },
  });
  const [title, label] = [h("p", { class: "drop-title" }), h("label", { for: "file", class: "button" }, text.choose)];
  const about = h("p", { class: "soft" }, h("span", { class: "not-on-phone" }, text.dropHere), text.chooseText);
  const area = h("div", { class: "drop" }, icon("imports"), title, h("p", null, input, label), about);
  const draw = (hasFile) => {
    setText(title, input.disabled ? text.dropLater : hasFile ? text.dropOther : text.drop);
    label.classList.toggle("primary", !hasFile);
    area.classList.toggle("low", hasFile);
    about.hidden = hasFile;
  };
  draw(false);
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
  const setOff = (isOff) => {
    input.disabled = isOff;
    draw(true);
  };
  return { element: h("section", { class: "card", "aria-label": text.file }, area), input, draw, setOff };
}

let template;

/** The columns of a file, and an example of one. */
function help() {
  template ??= URL.createObjectURL(new Blob([EXAMPLE], { type: "text/csv" }));
  const [before, command, after] = text.helpMigrate;
  const [node, rejects] = text.helpShared;
  const fields = text.fields.filter(({ needsAllLinks }) => hasAllLinks() || !needsAllLinks);
  const rows = fields.map(({ names, meaning, isRequired }) => row(
    { content: names.map((name) => h("code", null, name)), class: "names" },
    [meaning, isRequired && [" ", badge(text.required)]]));
  return h("div", { class: "cards import-help" },
    card(text.help, {}, regionTable(text.help, text.columns.map((title) => ({ title })), rows).element),
    card(text.example, {}, h("div", { class: "stack example" },
      snippet(text.example, EXAMPLE),
      h("p", { class: "soft" }, text.helpText),
      hasAllLinks() ? h("p", { class: "soft" }, before, h("code", null, command), after) : h("p", { "data-missing": "all-links" }, node, settingLink("links.home"), rejects),
      h("p", null, h("a", { class: "button", href: template, download: "links.csv" }, text.template)))));
}

async function take(page, file) {
  page.taken = file;
  fill(page.host, h("p", { class: "soft", role: "status" }, text.reading[0], outside(file.name), text.reading[1]));
  try {
    if (file.size > FILE_MAX_BYTES) {
      throw new Error(text.tooLarge(file.size, FILE_MAX_BYTES));
    }
    const content = decode(await file.arrayBuffer());
    if (page.taken === file) {
      page.file = { name: file.name, ...readFile(file.name, content) };
      showFile(page);
    }
  } catch (error) {
    if (page.taken === file) {
      const [before, after] = text.unreadable;
      const state = emptyState([before, outside(file.name), after], outside(error.message));
      state.classList.add("bad");
      state.setAttribute("role", "alert");
      state.dataset.problem = error.problem ?? "other";
      page.chooser.draw(false);
      fill(page.host, h("div", { class: "card" }, state), help());
    }
  }
}

/** What was understood, before anything is sent. */
function showFile(page) {
  const { name, kind, columns, rows } = page.file;
  const good = rows.filter((one) => one.error === undefined);
  const unknown = columns.filter((column) => column.field === undefined);
  page.run = null;
  page.out = h("div", { class: "stack import-out" });
  page.controls = controls(page, good);
  page.preview = preview(good);
  // What was read of the file, and how far it is.
  page.host.dataset.work = "import";
  page.chooser.draw(true);
  fill(page.out, unreadCard(page));
  fill(page.host,
    card(outside(name), { beside: badge(kind) }, h("div", { class: "stack" },
      tiles([[text.lines, format.number(rows.length)], [text.valid, format.number(good.length)], [text.invalid, h("span", { class: good.length < rows.length ? "warn-text" : null }, format.number(rows.length - good.length))]]),
      unknown.length > 0 && unknownColumns(unknown),
      page.controls)),
    page.out, page.preview);
}

/** What happens to slugs in use, a dry run, and the import. */
function controls(page, good) {
  const isIdle = good.length === 0;
  page.existing = field({
    name: "existing", label: text.existing, type: "select", options: text.existingChoices, hint: text.existingHints.reject, onchange: () => {
      setText(hint, text.existingHints[page.existing.value()]);
      page.make.disabled = isIdle;
      setText(page.make, text.runLinks);
      // The result of a dry run was that of another choice. An import that was stopped can still be resumed.
      if (page.run === null || page.run.isDry) {
        fill(page.out, unreadCard(page));
      }
    },
  });
  const hint = page.existing.element.querySelector("small");
  const begin = (label, isDry, props) => button(label, () => advance(page, new ImportRun(good, { isDry, existing: page.existing.value() })), { ...props, disabled: isIdle });
  page.dry = begin(text.dryRun, true, { "data-action": "dry-run" });
  page.make = begin(text.runLinks, false, { kind: "primary", "data-action": "import" });
  return h("div", { class: "stack import-controls" }, page.existing.element, h("p", { class: "line" }, page.dry, page.make, h("small", null, text.dryRunHint)));
}

/** The lines of the file that could not be read; nothing if there are none. */
function unreadCard({ file: { name, rows } }) {
  const unread = rows.filter((one) => one.error !== undefined);
  return unread.length > 0 && refusedCard(text.unread, unread, name);
}

function unknownColumns(columns) {
  const [before, after] = text.unknownColumns(columns.length);
  return h("p", { class: "notice warn" }, before, columns.map(({ title }, index) => [index > 0 && ", ", "“", outside(title), "”"]), after);
}

function preview(rows) {
  const names = [...new Set(rows.slice(0, SHOWN).flatMap(({ fields }) => Object.keys(fields)))];
  const classOf = (name, { title }) => `fluid-cell ${name === (title ? "title" : "longUrl") ? "lead" : "fact"}`;
  const cells = rows.slice(0, SHOWN).map(({ line, fields }) => row({ content: String(line), class: "num figure named" }, ...names.map((name) => ({ content: cell(fields[name]), class: classOf(name, fields) }))));
  const columns = [{ title: text.line, class: "num" }, ...names.map((name) => ({ title: fieldNames[name] ?? name }))];
  const said = text.firstLines(cells.length, rows.length);
  const { element: region, table } = regionTable(said, columns, cells);
  table.classList.add("preview", "rows", "as-cards");
  const element = card(text.preview, { beside: h("small", null, said) }, region);
  element.hidden = rows.length === 0;
  return element;
}

const cell = (value) => (value === undefined || value === null ? "" : clipped(Array.isArray(value) ? value.join(", ") : String(value)));

/** Sends what is left of a run, and shows how far it is. */
async function advance(page, run) {
  const running = new AbortController();
  markWork(page, running);
  let isStopping = false;
  page.dry.disabled = page.make.disabled = page.existing.input.disabled = true;
  page.chooser.setOff(true);
  const bar = h("progress", { max: run.rows.length, value: run.rows.length - run.left, "aria-label": text.progressLabel });
  const said = h("p", { class: "line", role: "status" }, text.begun);
  // What was sent is answered before it stops, unless that takes too long for somebody.
  const stop = button(text.stop, () => {
    if (isStopping) {
      running.abort();
    }
    isStopping = true;
    setText(stop, text.stopNow);
  }, { "data-action": "stop" });
  fill(page.out, card(run.isDry ? text.dryRunning : text.running, { beside: stop }, bar, said));
  stop.focus();
  const error = await run.advance({
    signal: running.signal,
    shouldStop: () => isStopping,
    told() {
      const at = run.rows.length - run.left;
      bar.value = at;
      setText(said, text.progress({ at, all: run.rows.length, made: run.made, refused: run.refused.length, rate: at / run.seconds, isDry: run.isDry }));
    },
  });
  markWork(page, null);
  page.chooser.setOff(false);
  showResult(page, run, error);
  if (!page.host.isConnected) {
    tellElsewhere(page, run.left > 0 ? text.stoppedElsewhere : run.isDry ? text.dryRunDone : text.doneElsewhere(run.made + run.updated));
  }
}

function showResult(page, run, error) {
  const { made, updated, same, skipped, refused, left, isDry } = run;
  page.run = run;
  const actions = [
    left > 0 && button(text.resume, () => advance(page, run), { kind: "primary", "data-action": "resume" }),
    !isDry && made + updated > 0 && hasAllLinks() && pageLink("/admin/links", text.seeLinks, { class: "button" }),
  ].filter(Boolean);
  const head = card(resultTitle(run), {},
    h("p", { role: "status", class: "import-done", "data-dry": String(isDry), "data-made": String(made), "data-rejected": String(refused.length), "data-updated": String(updated), "data-same": String(same), "data-skipped": String(skipped) },
      text.summary({ made, updated, same, skipped, refused: refused.length, seconds: run.seconds, isDry })),
    left > 0 && h("p", { class: "notice warn import-left", "data-unsure": String(run.unsure) }, outside(whatIsLeft(run, error))),
    actions.length > 0 && h("p", { class: "line" }, actions));
  fill(page.out, head,
    refused.length > 0 && refusedCard(text.rejected, refused.toSorted((one, other) => one.line - other.line), page.file.name),
    unreadCard(page));
  // After an import, there is nothing left to choose for this file.
  page.controls.hidden = page.preview.hidden = !isDry && left === 0 && made + updated > 0;
  page.dry.disabled = page.existing.input.disabled = false;
  page.make.disabled = !isDry || (left === 0 && made + updated === 0);
  setText(page.make, isDry && left === 0 ? text.run(made, updated) : text.runLinks);
  if (page.host.isConnected) {
    const next = page.controls.hidden ? page.chooser.input : page.make.disabled ? page.dry : page.make;
    (head.querySelector("button, a") ?? next).focus();
  }
}

function resultTitle({ made, updated, refused, left, isDry }) {
  if (left > 0) {
    return text.stopped;
  }
  if (made + updated === 0) {
    return h("span", { class: refused.length > 0 ? "bad-text" : null }, isDry ? text.wouldMakeNone : text.madeNone);
  }
  return isDry ? text.dryRunDone : text.done;
}

/** Why lines are left, from which one on, and what is not known of them. */
function whatIsLeft({ left, next, unsure, isDry }, error) {
  const why = error && error.name !== "AbortError" ? `${error.detail ?? error.message} ` : "";
  return `${why}${text.left(left, next.line)}${unsure > 0 && !isDry ? ` ${text.unsure(unsure)}` : ""}`;
}
