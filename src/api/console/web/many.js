// The same for many links: some at a time, told as it goes, with a stop.

import { count, number } from "./format.js";
import { common, many } from "./strings-shell.js";
import { toast } from "./toast.js";

const AT_ONCE = 4;

/** Runs `action(item)` for all; gives `{ done, failed: [[item, error]], isStopped }`. With more than a few, says how far it is. */
export async function forMany(items, doing, action) {
  const [done, failed] = [[], []];
  let isStopped = false;
  const queue = items.values();
  const told = items.length > AT_ONCE ? toast(many.begun(doing), { seconds: 0, action: { name: "stop", label: common.stop, run: () => { isStopped = true; } } }) : null;
  const work = async () => {
    for (const item of queue) {
      if (isStopped) {
        return;
      }
      try {
        await action(item);
        done.push(item);
      } catch (error) {
        failed.push([item, error]);
      }
      told?.say(many.progress(doing, number(done.length + failed.length), number(items.length)));
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, work));
  told?.close();
  return { done, failed, isStopped };
}

/** Says what failed of many. */
export function tellFailed(failed) {
  if (failed.length > 0) {
    const [link, error] = failed[0];
    toast(many.failed(count(failed.length, "link"), link.shortCode, error.detail ?? error.message), { kind: "bad", seconds: 15 });
  }
}
