import { signal } from '@preact/signals';
import { parseAnswer } from './exact/parse.ts';
import { root } from './root.ts';
import { apiKey, keyReadsOnly, needsKey, readOnly } from './setting.ts';

/** The server refused a request, and says why. */
export class Refused extends Error {
  override readonly name = 'Refused';
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, detail: string) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

/** When the server last answered, in milliseconds since 1970; 0: never. */
export const heardAt = signal(0);

/** The server could not be reached when it was last asked. */
export const unreachable = signal(false);

export interface Ask {
  body?: string;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** Where a path of the API is, under whatever prefix. */
export function url(path: string): string {
  return root + path.slice(1);
}

/** Whether the reader, not the server, ended a request. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

/** Sends a request with the key. What is wrong is thrown. */
export async function open(method: string, path: string, ask: Ask = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: 'application/json', ...ask.headers };
  const key = apiKey.peek();
  if (key) headers['Authorization'] = `Bearer ${key}`;
  if (ask.body !== undefined) headers['Content-Type'] = 'application/json';
  const init: RequestInit = { method, headers };
  if (ask.body !== undefined) init.body = ask.body;
  if (ask.signal) init.signal = ask.signal;
  let response: Response;
  try {
    response = await fetch(url(path), init);
  } catch (error) {
    if (!isAbort(error)) unreachable.value = true;
    throw isAbort(error) ? error : new Error('The server cannot be reached.');
  }
  heard(response, key);
  if (response.ok || response.status === 304) return response;
  throw await refused(method, response);
}

/** Notes that the server has answered, and whether it wants another key than the one
 * that the request had. */
export function heard(response: Response, key: string): void {
  unreachable.value = false;
  heardAt.value = Date.now();
  if (response.status === 401 && key === apiKey.peek()) needsKey.value = true;
}

async function refused(method: string, response: Response): Promise<Refused> {
  let code = 'http';
  let detail = `The server answered ${response.status}.`;
  try {
    const problem = (await response.json()) as { code?: unknown; detail?: unknown };
    if (typeof problem.code === 'string') code = problem.code;
    if (typeof problem.detail === 'string') detail = problem.detail;
  } catch {
    // what answered was not bide
  }
  if (method !== 'GET') noteRefusal(code);
  return new Refused(response.status, code, detail);
}

/** Notes that a change was refused in a way that the next one will be, too. */
export function noteRefusal(code: string): void {
  if (code === 'read-only') readOnly.value = true;
  if (code === 'forbidden') keyReadsOnly.value = true;
}

/** Reads an answer whose shape the API promises; a user's JSON in it stays text. */
export async function read<T>(path: string, abort?: AbortSignal): Promise<T> {
  const response = await open('GET', path, abort ? { signal: abort } : {});
  return parseAnswer(await response.text()) as T;
}

/** Changes something; the answer is read like any other. */
export async function send<T>(method: string, path: string, body?: string, headers?: Record<string, string>): Promise<T> {
  const ask: Ask = {};
  if (body !== undefined) ask.body = body;
  if (headers) ask.headers = headers;
  const response = await open(method, path, ask);
  const text = await response.text();
  return (text === '' ? undefined : parseAnswer(text)) as T;
}

export function runPath(id: string): string {
  return '/v1/runs/' + encodeURIComponent(id);
}

export function loopPath(name: string): string {
  return '/v1/loops/' + encodeURIComponent(name);
}
