// Runs test/*.test.ts with Node's test runner; Node 20 cannot read TypeScript by itself.
import { spawnSync } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { build } from 'esbuild';

const root = new URL('.', import.meta.url).pathname;
rmSync(root + 'build', { recursive: true, force: true });
const files = readdirSync(root + 'test').filter((f) => f.endsWith('.test.ts'));
await build({
  entryPoints: files.map((f) => root + 'test/' + f),
  outdir: root + 'build',
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  logLevel: 'warning',
});
const built = files.map((f) => root + 'build/' + f.replace(/\.ts$/, '.js'));
process.exit(spawnSync(process.execPath, ['--test', ...built], { stdio: 'inherit' }).status ?? 1);
