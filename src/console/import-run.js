// An import under way: links go to the node in chunks, and what becomes of each line is read while it is sent.

import { lineBatches, send } from "./api.js";

const CHUNK = 2_000;
const BULK = "/rest/v3/short-urls/bulk";

/**
 * Sends rows and tells of it: `told({ done, made, refused, left })` after each batch of answers. Resolves to `{ refused, left, error }`: the
 * rows that were refused, each with its reason; those that nobody has answered for, because it was stopped or failed; and why.
 */
export async function runImport(rows, { isDry, signal, told }) {
  const refused = [];
  let at = 0;
  const tell = () => told({ done: at, made: at - refused.length, refused: refused.length });
  try {
    while (at < rows.length) {
      const chunk = rows.slice(at, at + CHUNK);
      let answered = 0;
      for await (const batch of await sendChunk(chunk, isDry, signal)) {
        for (const { line, status, error, ended } of batch) {
          if (ended) {
            throw new Error(error?.detail ?? "The node ends. Go on when it is back.");
          }
          const row = chunk[line - 1];
          if (status >= 400) {
            refused.push({ line: row.line, text: row.text, error: error?.detail ?? `status ${status}` });
          }
          answered += 1;
        }
        at += batch.length;
        tell();
      }
      if (answered < chunk.length) {
        throw new Error("The answer of the node ended before its last line.");
      }
    }
    return { refused, left: [], error: null };
  } catch (error) {
    return { refused, left: rows.slice(at), error };
  }
}

async function sendChunk(chunk, isDry, signal) {
  const body = chunk.map(({ fields }) => `${JSON.stringify(fields)}\n`).join("");
  const path = isDry ? `${BULK}?dryRun=true` : BULK;
  const response = await send("POST", path, { body, headers: { "Content-Type": "application/x-ndjson" }, signal, timeout: 60 });
  return lineBatches(response);
}
