// An import in progress: links go to the node in chunks, and the result of each line is read while more are sent.

import { get, lineBatches, linkPath, patch, send } from "./api.js";
import { changesOf } from "./import-changes.js";
import { lines } from "./strings-import.js";

const CHUNK = 2_000;
const BULK = "/rest/v3/short-urls/bulk";
/** How many existing links are read and changed at once. */
const CHANGED_AT_ONCE = 6;

/** Why the node refuses a line, in words of the console where it has some. */
const reasonOf = (error, status) => (error?.customSlug === undefined ? error?.detail ?? lines.status(status) : lines.slugTaken(error.customSlug, error.domain));

/** Rows on their way to the node. Stopped or broken off, it can be gone on with: what was answered stays answered. */
export class ImportRun {
  /** `existing` says what happens to a line whose slug is in use: "reject", "skip" or "update". */
  constructor(rows, { isDry, existing }) {
    this.rows = rows;
    this.isDry = isDry;
    this.existing = existing;
    /** How many rows are answered: all before this one. */
    this.at = 0;
    /** Answered rows whose links are still to be compared with them. */
    this.compared = [];
    /** How many rows changed a link, told nothing new about it, or were skipped. */
    this.updated = this.same = this.skipped = 0;
    /** Those that were refused, each with its reason. */
    this.refused = [];
    /** Rows behind those, which were sent, and whose answer was lost. */
    this.unsure = 0;
    this.seconds = 0;
    /** The lines that would have taken an ending, where nothing is made. */
    this.taken = new Map();
  }

  get made() {
    return this.at - this.compared.length - this.refused.length - this.updated - this.same - this.skipped;
  }

  get left() {
    return this.rows.length - this.at + this.compared.length;
  }

  /** The first row that is not done. */
  get next() {
    return this.compared[0] ?? this.rows[this.at];
  }

  /**
   * Sends what is left, and calls `told()` after each batch of answers. `shouldStop()` is asked between chunks, so that all that
   * was sent is answered; `signal` breaks it off at once. Resolves to why it did not come to its end, or `null`.
   */
  async advance({ signal, shouldStop, told }) {
    const began = performance.now();
    const before = this.seconds;
    const tell = () => {
      this.seconds = before + (performance.now() - began) / 1000;
      told();
    };
    this.unsure = 0;
    try {
      while (this.left > 0 && !shouldStop()) {
        if (this.compared.length > 0) {
          await this.compareSome(signal);
          tell();
        } else {
          await this.sendChunk(this.rows.slice(this.at, this.at + CHUNK), signal, tell);
        }
      }
      return null;
    } catch (error) {
      return error;
    } finally {
      tell();
    }
  }

  async sendChunk(chunk, signal, tell) {
    const body = chunk.map(({ fields }) => `${JSON.stringify(fields)}\n`).join("");
    const path = this.isDry ? `${BULK}?dryRun=true` : BULK;
    const end = this.at + chunk.length;
    // From here on the node creates links; if the connection breaks, it is unknown which.
    this.unsure = chunk.length;
    const response = await send("POST", path, { body, headers: { "Content-Type": "application/x-ndjson" }, signal, timeout: 60 }).catch((error) => {
      this.unsure = error.status > 0 ? 0 : this.unsure;
      throw error;
    });
    for await (const batch of lineBatches(response)) {
      for (const answer of batch) {
        this.take(answer);
      }
      tell();
    }
    if (this.at < end) {
      throw new Error(lines.cutOff);
    }
  }

  /** The line that would have taken the ending before; `undefined` where it is the first. The node knows of one chunk alone. */
  tryEnding({ customSlug, domain, findIfExists }, line) {
    if (!customSlug || findIfExists) {
      return undefined;
    }
    const key = `${(domain ?? "").toLowerCase()}/${customSlug}`;
    const before = this.taken.get(key);
    this.taken.set(key, before ?? line);
    return before;
  }

  take({ status, error, ended }) {
    if (ended) {
      this.unsure = 0;
      throw new Error(error?.detail ?? lines.stopping);
    }
    const row = this.rows[this.at];
    const { line, text, fields } = row;
    const isTaken = error?.customSlug !== undefined && this.existing !== "reject";
    const before = status < 400 || isTaken ? this.tryEnding(fields, line) : undefined;
    if (before !== undefined && (this.isDry || isTaken)) {
      this.refused.push({ line, text, error: lines.duplicateSlug(before, fields.customSlug) });
    } else if (isTaken && this.existing === "skip") {
      this.skipped += 1;
    } else if (isTaken) {
      this.compared.push({ ...row, error: reasonOf(error, status) });
    } else if (status >= 400) {
      this.refused.push({ line, text, error: reasonOf(error, status) });
    }
    this.at += 1;
    this.unsure -= 1;
  }

  /** Compares some rows with the links that have their slugs, and changes these links. */
  async compareSome(signal) {
    const rows = this.compared.slice(0, CHANGED_AT_ONCE);
    const results = await Promise.all(rows.map((row) => this.compare(row, signal)));
    this.compared.splice(0, rows.length);
    results.forEach((result, index) => {
      const { line, text } = rows[index];
      if (typeof result === "string") {
        this.refused.push({ line, text, error: result });
      } else if (result) {
        this.updated += 1;
      } else {
        this.same += 1;
      }
    });
  }

  /** Resolves to whether the link of a row changes, or to the reason for which it cannot. */
  async compare({ fields, error }, signal) {
    const path = linkPath({ shortCode: fields.customSlug, domain: fields.domain });
    try {
      const changes = changesOf(fields, await get(path, { signal }));
      const isChanged = Object.keys(changes).length > 0;
      if (isChanged && !this.isDry) {
        await patch(path, changes, { signal });
      }
      return isChanged;
    } catch (refusal) {
      if (refusal.status === 404) {
        // The slug belongs to a link that this key may not see.
        return error;
      }
      if (refusal.status >= 400 && refusal.status < 500 && ![401, 429].includes(refusal.status)) {
        return refusal.detail;
      }
      throw refusal;
    }
  }
}
