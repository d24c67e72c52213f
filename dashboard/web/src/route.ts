import { computed, signal } from '@preact/signals';
import { root } from './root.ts';

/** Where the reader is: the path under the root, "/runs/x", and the query. */
const here = signal(read());

function read(): { path: string; query: string } {
  const path = '/' + location.pathname.slice(root.length);
  return { path, query: location.search };
}

export const path = computed(() => here.value.path);
export const query = computed(() => new URLSearchParams(here.value.query));

export type Page =
  | { name: 'runs' }
  | { name: 'run'; id: string }
  | { name: 'loops' }
  | { name: 'loop'; loop: string }
  | { name: 'queues' }
  | { name: 'start' }
  | { name: 'unknown' };

export const page = computed<Page>(() => pageOf(path.value));

export function pageOf(path: string): Page {
  const [first = '', second, ...more] = path.replace(/^\//, '').split('/');
  if (more.length > 0) return { name: 'unknown' };
  const part = second === undefined || second === '' ? undefined : decoded(second);
  switch (first) {
    case '':
      return part === undefined ? { name: 'runs' } : { name: 'unknown' };
    case 'runs':
      return part === undefined ? { name: 'runs' } : { name: 'run', id: part };
    case 'loops':
      return part === undefined ? { name: 'loops' } : { name: 'loop', loop: part };
    case 'queues':
    case 'start':
      return part === undefined ? { name: first } : { name: 'unknown' };
    default:
      return { name: 'unknown' };
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page: "/runs" or "/runs?state=failed". */
export function href(to: string): string {
  return root + to.slice(1);
}

export function runHref(id: string): string {
  return id.startsWith('loop:') ? loopHref(id.slice(5)) : href('/runs/' + encodeURIComponent(id));
}

export function loopHref(name: string): string {
  return href('/loops/' + encodeURIComponent(name));
}

/** Goes to an address of this program without loading it anew. */
export function go(to: string, how: 'push' | 'replace' = 'push'): void {
  if (how === 'push') history.pushState(null, '', to);
  else history.replaceState(null, '', to);
  here.value = read();
}

/** Sets parameters of the query; an empty one is taken out. */
export function setQuery(changes: Record<string, string>, how: 'push' | 'replace' = 'push'): void {
  const next = new URLSearchParams(here.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === '') next.delete(name);
    else next.set(name, value);
  }
  const text = next.toString().replaceAll('%2C', ',').replaceAll('%3A', ':');
  go(location.pathname + (text ? '?' + text : ''), how);
}

/** Follows links within the program, and the browser's own buttons. */
export function startRouting(onPage: () => void): void {
  window.addEventListener('popstate', () => (here.value = read()));
  document.addEventListener('click', (e) => {
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    const link = e.target instanceof Element ? e.target.closest('a') : null;
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin || link.hash) return;
    if (!link.pathname.startsWith(root) || pageOf('/' + link.pathname.slice(root.length)).name === 'unknown') return;
    e.preventDefault();
    const before = location.pathname;
    go(link.href);
    if (location.pathname !== before) onPage();
  });
}
