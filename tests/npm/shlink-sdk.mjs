// Calls every method of Shlink's JavaScript SDK on a node, and prints what became of each as JSON:
// `{"method": null}` for a result in the documented shape, `{"method": "reason"}` for any other.
//
// Usage: node shlink-sdk.mjs BASE_URL API_KEY node|fetch

import assert from 'node:assert/strict';

import { ShlinkApiClient } from '@shlinkio/shlink-js-sdk';
import { FetchHttpClient } from '@shlinkio/shlink-js-sdk/fetch';
import { NodeHttpClient } from '@shlinkio/shlink-js-sdk/node';

const [baseUrl, apiKey, transport] = process.argv.slice(2);
const httpClient = transport === 'fetch' ? new FetchHttpClient() : new NodeHttpClient();
const client = new ShlinkApiClient(httpClient, { baseUrl, apiKey });

// Shapes of the SDK's types. `?` marks a value that may be null.
const number = (value) => assert.equal(typeof value, 'number');
const text = (value) => assert.equal(typeof value, 'string');
const flag = (value) => assert.equal(typeof value, 'boolean');
const orNull = (shape) => (value) => (value === null ? undefined : shape(value));
const list = (shape) => (value) => {
  assert.ok(Array.isArray(value), `not a list: ${JSON.stringify(value)}`);
  value.forEach(shape);
};
const object = (shapes) => (value) => {
  assert.ok(value && typeof value === 'object', `not an object: ${JSON.stringify(value)}`);
  for (const [name, shape] of Object.entries(shapes)) {
    assert.ok(name in value, `${name} is missing in ${JSON.stringify(value)}`);
    shape(value[name]);
  }
};
const summary = object({ total: number, nonBots: number, bots: number });
const paginator = object({ currentPage: number, pagesCount: number, totalItems: number });
const shortUrl = object({
  shortCode: text,
  shortUrl: text,
  longUrl: text,
  domain: orNull(text),
  dateCreated: text,
  visitsSummary: summary,
  meta: object({ validSince: orNull(text), validUntil: orNull(text), maxVisits: orNull(number) }),
  tags: list(text),
  title: orNull(text),
  crawlable: flag,
  forwardQuery: flag,
  hasRedirectRules: flag,
});
const redirects = object({
  baseUrlRedirect: orNull(text),
  regular404Redirect: orNull(text),
  invalidShortUrlRedirect: orNull(text),
});
const visits = object({
  data: list(object({ referer: text, date: text, userAgent: text, visitLocation: orNull(object({})), potentialBot: flag })),
  pagination: paginator,
});
const rules = object({ defaultLongUrl: text, redirectRules: list(object({ longUrl: text, conditions: list(object({})) })) });
const deleted = object({ deletedVisits: number });

const slug = `sdk-${transport}`;
const tag = `sdk-${transport}`;
const newTag = `${tag}-renamed`;
const it = { shortCode: slug };
const longUrl = 'https://example.org/of/the/sdk';

const listed = async (params) => {
  const found = await client.listShortUrls(params);
  object({ data: list(shortUrl), pagination: paginator })(found);
  return found.data.map(({ shortCode }) => shortCode);
};

// One call after another: later ones need what earlier ones have created.
const calls = {
  health: async () => {
    const health = await client.health();
    object({ status: text, version: text })(health);
    // Clients compare the version to decide which features they offer.
    const [major, minor] = health.version.split('.').map(Number);
    assert.ok(major > 4 || (major === 4 && minor >= 6), `features of Shlink 4.6 are hidden for version ${health.version}`);
  },
  createShortUrl: async () => {
    const created = await client.createShortUrl({ longUrl, customSlug: slug, tags: [tag, 'sdk-other'], title: 'SDK', maxVisits: 9 });
    shortUrl(created);
    assert.deepEqual([created.shortCode, created.longUrl, created.meta.maxVisits], [slug, longUrl, 9]);
    const again = await client.createShortUrl({ longUrl, tags: [tag, 'sdk-other'], title: 'SDK', maxVisits: 9, findIfExists: true });
    assert.equal(again.shortCode, slug);
    const short = await client.createShortUrl({ longUrl: `${longUrl}/9`, shortCodeLength: 9, tags: [tag] });
    assert.equal(short.shortCode.length, 9);
    await client.deleteShortUrl(short);
  },
  getShortUrl: async () => {
    const found = await client.getShortUrl(it);
    shortUrl(found);
    assert.equal(found.title, 'SDK');
  },
  updateShortUrl: async () => {
    const changed = await client.updateShortUrl(it, { title: 'Changed', maxVisits: null });
    shortUrl(changed);
    assert.deepEqual([changed.title, changed.meta.maxVisits], ['Changed', null]);
  },
  listShortUrls: async () => {
    assert.deepEqual(await listed({ tags: [tag], page: '1', itemsPerPage: 5 }), [slug]);
    const filters = { tagsMode: 'all', excludeMaxVisitsReached: true, excludePastValidUntil: true, domain: 'DEFAULT' };
    assert.deepEqual(await listed({ tags: [tag, 'sdk-other'], ...filters }), [slug]);
    assert.deepEqual(await listed({ tags: [tag], excludeTags: ['sdk-other'] }), []);
    assert.deepEqual(await listed({ tags: [tag], excludeTags: ['sdk-other', 'none'], excludeTagsMode: 'all' }), [slug]);
    assert.deepEqual(await listed({ tags: [tag], apiKeyName: 'sdk' }), [slug]);
    assert.deepEqual(await listed({ tags: [tag], apiKeyName: 'nobody' }), []);
    for (const field of ['dateCreated', 'shortCode', 'longUrl', 'title', 'visits', 'nonBotVisits']) {
      for (const dir of ['ASC', 'DESC']) {
        assert.deepEqual(await listed({ tags: [tag], orderBy: { field, dir } }), [slug]);
      }
    }
  },
  getShortUrlRedirectRules: async () => rules(await client.getShortUrlRedirectRules(it)),
  setShortUrlRedirectRules: async () => {
    const conditions = [{ type: 'device', matchKey: null, matchValue: 'android' }];
    const redirectRules = [{ longUrl: `${longUrl}/android`, conditions }];
    rules(await client.setShortUrlRedirectRules(it, { redirectRules }));
  },
  getVisitsOverview: async () => object({ nonOrphanVisits: summary, orphanVisits: summary })(await client.getVisitsOverview()),
  getShortUrlVisits: async () => visits(await client.getShortUrlVisits(it, { page: 1, itemsPerPage: 5, excludeBots: true })),
  getTagVisits: async () => visits(await client.getTagVisits(tag, { page: 1, itemsPerPage: 5 })),
  getDomainVisits: async () => visits(await client.getDomainVisits('DEFAULT', { page: 1, itemsPerPage: 5 })),
  getOrphanVisits: async () => visits(await client.getOrphanVisits({ page: 1, type: 'base_url' })),
  getNonOrphanVisits: async () => visits(await client.getNonOrphanVisits({ page: 1, itemsPerPage: 5 })),
  deleteShortUrlVisits: async () => deleted(await client.deleteShortUrlVisits(it)),
  deleteOrphanVisits: async () => deleted(await client.deleteOrphanVisits()),
  listTags: async () => {
    const { data } = await client.listTags();
    list(text)(data);
    assert.ok(data.includes(tag), JSON.stringify(data));
  },
  tagsStats: async () => {
    const { data } = await client.tagsStats();
    list(object({ tag: text, shortUrlsCount: number, visitsSummary: summary }))(data);
    assert.equal(data.find((stats) => stats.tag === tag)?.shortUrlsCount, 1);
  },
  editTag: async () => {
    await client.editTag({ oldName: tag, newName: newTag });
    assert.deepEqual(await listed({ tags: [newTag] }), [slug]);
    assert.deepEqual(await listed({ tags: [tag] }), []);
    await assert.rejects(client.editTag({ oldName: newTag, newName: 'sdk-other' }), { status: 409 });
  },
  deleteTags: async () => {
    await client.deleteTags(['sdk-other', newTag]);
    assert.deepEqual((await client.getShortUrl(it)).tags, []);
  },
  listDomains: async () => {
    const found = await client.listDomains();
    object({ data: list(object({ domain: text, isDefault: flag, redirects })), defaultRedirects: redirects })(found);
  },
  editDomainRedirects: async () => {
    const domain = (await client.listDomains()).data[0].domain;
    const changed = await client.editDomainRedirects({ domain, baseUrlRedirect: `${longUrl}/home` });
    redirects(changed);
    assert.equal(changed.baseUrlRedirect, `${longUrl}/home`);
    const removed = await client.editDomainRedirects({ domain, baseUrlRedirect: null, regular404Redirect: `${longUrl}/404` });
    assert.deepEqual([removed.baseUrlRedirect, removed.regular404Redirect], [null, `${longUrl}/404`]);
    assert.deepEqual((await client.listDomains()).data[0].redirects, removed);
  },
  mercureInfo: async () => {
    // Shlink without a Mercure hub answers with this error, which clients expect.
    await assert.rejects(client.mercureInfo(), { type: 'https://shlink.io/api/error/mercure-not-configured', status: 501 });
  },
  deleteShortUrl: async () => {
    assert.equal(await client.deleteShortUrl(it), undefined);
    await assert.rejects(client.getShortUrl(it), { type: 'https://shlink.io/api/error/short-url-not-found', status: 404 });
  },
};

const methods = Object.getOwnPropertyNames(ShlinkApiClient.prototype).filter((name) => name !== 'constructor');
assert.deepEqual(Object.keys(calls).sort(), methods.sort(), 'one call for each method of the SDK');

const results = {};
for (const [method, call] of Object.entries(calls)) {
  try {
    await call();
    results[method] = null;
  } catch (error) {
    results[method] = error instanceof Error ? error.message : JSON.stringify(error);
  }
}
console.log(JSON.stringify(results));
