// An import in progress: links go to the node in chunks, and the result of each line is read while more are sent.

import { lineBatches, send } from "./api.js";
import { lines } from "./strings-import.js";

const CHUNK = 2_000;
const BULK = "/rest/v3/short-urls/bulk";

/** Rows on their way to the node. Stopped or broken off, it can be gone on with: what was answered stays answered. */
export class ImportRun {
  constructor(rows, { isDry }) {
    this.rows = rows;
    this.isDry = isDry;
    /** How many rows are answered: all before this one. */
    this.at = 0;
    /** Those that were refused, each with its reason. */
    this.refused = [];
    /** Rows behind those, which were sent, and whose answer was lost. */
    this.unsure = 0;
    this.seconds = 0;
    /** The lines that would have taken an ending, where nothing is made. */
    this.taken = new Map();
  }

  get made() {
    return this.at - this.refused.length;
  }

  get left() {
    return this.rows.length - this.at;
  }

  /** The first row that nobody has answered for. */
  get next() {
    return this.rows[this.at];
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
        await this.sendChunk(this.rows.slice(this.at, this.at + CHUNK), signal, tell);
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
    const { line, text, fields } = this.next;
    const before = this.isDry && status < 400 ? this.tryEnding(fields, line) : undefined;
    if (status >= 400) {
      this.refused.push({ line, text, error: error?.detail ?? lines.status(status) });
    } else if (before !== undefined) {
      this.refused.push({ line, text, error: lines.duplicateSlug(before, fields.customSlug) });
    }
    this.at += 1;
    this.unsure -= 1;
  }
}
