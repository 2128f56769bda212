// Rates the pages of `carom demo` with Lighthouse, as on a phone and on a desktop. Prints a line for each page, and ends with 1 if
// a rating is below 95 of 100.
//
// Usage: node rate.mjs CAROM, the path of the binary

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

import { launch } from 'chrome-launcher';
import lighthouse from 'lighthouse';
import desktop from 'lighthouse/core/config/desktop-config.js';

/** The lowest rating that passes. */
const MIN = 95;
const CATEGORIES = ['performance', 'accessibility', 'best-practices'];
const CONSOLE = ['', 'links', 'links/summer', 'tags', 'usage', 'import', 'apps', 'domains', 'lists', 'fleet', 'settings'];
const PUBLIC = ['/', '/summer+'];

async function freeAddress() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return `127.0.0.1:${port}`;
}

async function untilReady(admin, demo) {
  for (;;) {
    if (demo.exitCode !== null) {
      throw new Error(`carom demo has ended with ${demo.exitCode}`);
    }
    const answer = await fetch(`http://${admin}/readyz`).catch(() => null);
    if (answer?.ok) {
      return;
    }
    await sleep(100);
  }
}

/** The ratings of a page, by category, of 100. */
async function rate(url, port, config) {
  const { lhr } = await lighthouse(url, { port, onlyCategories: CATEGORIES, logLevel: 'error' }, config);
  if (lhr.runtimeError) {
    throw new Error(`${url}: ${lhr.runtimeError.message}`);
  }
  return CATEGORIES.map((name) => Math.round((lhr.categories[name].score ?? 0) * 100));
}

async function rateAll(urls, port) {
  let low = 0;
  for (const [device, config] of [['phone', undefined], ['desktop', desktop]]) {
    for (const url of urls) {
      const ratings = await rate(url, port, config);
      const isLow = ratings.some((rating) => rating < MIN);
      low += isLow ? 1 : 0;
      const shown = CATEGORIES.map((name, at) => `${name} ${ratings[at]}`).join(', ');
      console.log(`${isLow ? 'LOW ' : 'ok  '} ${device.padEnd(7)} ${new URL(url).pathname}: ${shown}`);
    }
  }
  return low;
}

const [carom] = process.argv.slice(2);
const [listen, admin] = [await freeAddress(), await freeAddress()];
const demo = spawn(carom, ['demo', '--listen', listen, '--admin-listen', admin], { stdio: 'ignore' });
await once(demo, 'spawn');
let chrome;
try {
  await untilReady(admin, demo);
  chrome = await launch({ chromePath: '/usr/bin/chromium', chromeFlags: ['--headless=new', '--no-sandbox'] });
  const urls = [...CONSOLE.map((page) => `http://${admin}/admin/${page}`), ...PUBLIC.map((path) => `http://${listen}${path}`)];
  const low = await rateAll(urls, chrome.port);
  console.log(low === 0 ? `All ratings are at least ${MIN}.` : `${low} pages have a rating below ${MIN}.`);
  process.exitCode = low === 0 ? 0 : 1;
} finally {
  await chrome?.kill();
  demo.kill('SIGINT');
  if (demo.exitCode === null) {
    await once(demo, 'exit');
  }
}
