// Runs the browser tests with the Chromium that the client's chromium.sh finds or
// installs, against a bide that is built from this tree.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const module = here('../../..');
const found = spawnSync(here('../../../clients/typescript/browser/chromium.sh'), { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
if (found.status === 3) {
  console.error('*** THE BROWSER TESTS DO NOT RUN ***');
  process.exit(0);
}
if (found.status !== 0) process.exit(found.status ?? 1);

const temp = mkdtempSync(join(tmpdir(), 'bide-dashboard-'));
let status = 1;
try {
  const go = process.env.GO ?? 'go';
  const binary = process.env.BIDE_BINARY ?? join(temp, 'bide');
  const fixture = join(temp, 'fixture.db');
  const build = (args, env = {}) => execFileSync(go, args, { cwd: module, stdio: ['ignore', 'ignore', 'inherit'], env: { ...process.env, ...env } });
  if (!process.env.BIDE_BINARY) build(['build', '-o', binary, './cmd/bide']);
  build(['test', '-count=1', '-run=^TestFixture$', './dashboard'], { BIDE_FIXTURE: fixture });
  rmSync(here('shots'), { recursive: true, force: true });
  mkdirSync(here('shots'));
  const wanted = process.argv.slice(2);
  const files = readdirSync(here('.')).filter((f) => f.endsWith('.test.mjs') && (wanted.length === 0 || wanted.some((w) => f.includes(w))));
  // one file after the other: they measure, on a machine of two cores
  const run = spawnSync(process.execPath, ['--test', '--test-concurrency=1', '--test-timeout=300000', '--test-reporter=spec', ...files.map(here)], {
    stdio: 'inherit',
    env: { ...process.env, CHROMIUM: found.stdout.trim(), BIDE_BINARY: binary, BIDE_FIXTURE: fixture, NODE_NO_WARNINGS: '1' },
  });
  status = run.status ?? 1;
} finally {
  rmSync(temp, { recursive: true, force: true });
}
process.exit(status);
