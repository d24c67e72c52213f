// A bide of this tree, on a port of its own.
import { spawn } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const binary = process.env.BIDE_BINARY;
const fixture = process.env.BIDE_FIXTURE;

/** A folder with a copy of the fixture. */
export function folder() {
  const dir = mkdtempSync(join(tmpdir(), 'bide-browser-'));
  const db = join(dir, 'bide.db');
  copyFileSync(fixture, db);
  return { db, remove: () => rmSync(dir, { recursive: true, force: true }) };
}

const running = new Set();

/** Ends what a failed test has left, which would hold up the end of the process. */
export async function stopAll() {
  for (const server of [...running]) await server.stop('SIGKILL');
}

// BIDE_… variables are settings of bide's; those of the tests are none of it.
const env = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith('BIDE_')));

/** Starts `bide COMMAND --db DB --addr ADDR …`, and waits until it says where it listens. */
export async function serve(command, db, { addr = '127.0.0.1:0', more = [] } = {}) {
  const child = spawn(binary, [command, '--db', db, '--addr', addr, ...more], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.on('data', (data) => (said += data));
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const url = await Promise.race([
    new Promise((resolve) => createInterface({ input: child.stdout }).once('line', resolve)),
    ended.then((code) => Promise.reject(new Error(`bide ${command} ended with ${code}: ${said}`))),
  ]);
  const server = {
    url,
    addr: new URL(url).host,
    /** Ends it, by Ctrl-C or at once. */
    async stop(signal = 'SIGINT') {
      running.delete(server);
      child.kill(signal);
      await ended;
    },
  };
  running.add(server);
  return server;
}

/** Runs a command of bide to its end and gives what it prints. */
export async function bide(...args) {
  const child = spawn(binary, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.on('data', (data) => (out += data));
  const code = await new Promise((resolve) => child.once('exit', resolve));
  if (code !== 0) throw new Error(`bide ${args.join(' ')}: exit ${code}`);
  return out;
}

/** Asks the API past the page. */
export async function api(url, method, path, body) {
  const response = await fetch(url + path, { method, headers: body === undefined ? {} : { 'Content-Type': 'application/json' }, body: body === undefined ? undefined : JSON.stringify(body) });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  const text = await response.text();
  return text === '' ? undefined : JSON.parse(text);
}
