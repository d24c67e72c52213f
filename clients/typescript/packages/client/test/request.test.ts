import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createBide, ProblemError } from '../src/index.js';
import { retryAfter } from '../src/hint.js';
import { runOf } from './server.js';

describe('request', () => {
  const asked: string[] = [];
  let answer: () => Response = () => Response.json({});
  const bide = createBide({
    baseUrl: 'http://bide/api/',
    fetch: async (url, init) => {
      asked.push(`${init.method} ${url} ${String(init.body ?? '')}`);
      return answer();
    },
  });

  it('fills in the path and the query', async () => {
    answer = () => Response.json({ runs: [runOf('a')], next_page_token: null });
    const page = await bide.request('GET', '/v1/runs', { query: { state: ['running', 'waiting'], label: ['a:b'], page_size: 10 } });
    assert.equal(page.runs[0]?.state, 'running');
    assert.equal(asked.at(-1), 'GET http://bide/api/v1/runs?state=running&state=waiting&label=a%3Ab&page_size=10 ');
    answer = () => Response.json({ duplicate: false });
    const { duplicate } = await bide.request('POST', '/v1/runs/{id}/signal/{name}', { path: { id: 'a/b', name: 'go' }, body: { ok: true } });
    assert.equal(duplicate, false);
    assert.equal(asked.at(-1), 'POST http://bide/api/v1/runs/a%2Fb/signal/go {"ok":true}');
    await assert.rejects(bide.request('GET', '/v1/runs/{id}', {}), /path.id is missing/);
  });

  it('answers undefined where there is no content', async () => {
    answer = () => new Response(null, { status: 204 });
    assert.equal(await bide.request('DELETE', '/v1/runs/{id}', { path: { id: 'a' }, query: { purge: true } }), undefined);
  });

  it('throws what the server says is wrong', async () => {
    const problem = { code: 'invalid-input', detail: 'workflow is missing', field: 'workflow', retryable: false, status: 400 };
    answer = () => new Response(JSON.stringify(problem), { status: 400, headers: { 'Content-Type': 'application/problem+json' } });
    await assert.rejects(bide.request('POST', '/v1/loops/{name}/trigger', { path: { name: 'x' } }), (error) => {
      assert.ok(error instanceof ProblemError);
      assert.deepEqual([error.message, error.field, error.code, error.retryable], ['workflow is missing', 'workflow', 'invalid-input', false]);
      return true;
    });
    answer = () => new Response('<html>', { status: 502 });
    await assert.rejects(bide.request('GET', '/v1/loops'), { code: 'http', status: 502, retryable: true });
    answer = () => new Response('<html>', { status: 200 });
    await assert.rejects(bide.request('GET', '/v1/loops'), /is not JSON/);
  });

  it('is destroyed without a trace', () => bide.destroy());
});

describe('Retry-After', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');
  const cases: [Record<string, string>, number | undefined][] = [
    [{ 'Retry-After': '7' }, 7000],
    [{ 'Retry-After': 'Thu, 01 Jan 2026 00:01:00 GMT' }, 60_000],
    [{ 'Retry-After': 'Thu, 01 Jan 2026 00:01:00 GMT', Date: 'Thu, 01 Jan 2026 00:00:50 GMT' }, 10_000],
    [{ 'Retry-After': 'Wed, 31 Dec 2025 00:00:00 GMT' }, undefined],
    [{ 'Retry-After': '0' }, undefined],
    [{ 'Retry-After': '-5' }, undefined],
    [{ 'Retry-After': 'soon' }, undefined],
    [{}, undefined],
  ];
  for (const [headers, ms] of cases) {
    it(`${JSON.stringify(headers)} is ${ms}`, () => assert.equal(retryAfter(new Headers(headers), now), ms));
  }
});
