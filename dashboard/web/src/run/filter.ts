import { isState, type State } from '../shape.ts';

/** What the list of runs shows, as it stands in the page's address. */
export interface Filter {
  states: State[];
  workflow: string;
  queue: string;
  /** What is typed: the beginning of an id, and labels as name=value. */
  search: string;
  /** Where the page of the list begins; empty: at the newest. */
  page: string;
}

export function filterOf(query: URLSearchParams): Filter {
  return {
    states: (query.get('state') ?? '').split(',').filter(isState),
    workflow: query.get('workflow') ?? '',
    queue: query.get('queue') ?? '',
    search: query.get('q') ?? '',
    page: query.get('page') ?? '',
  };
}

export const pageSize = 50;

/** The same, as the API's list takes it. */
export function listQuery(f: Filter): string {
  const params = new URLSearchParams();
  if (f.states.length > 0) params.set('state', f.states.join(','));
  if (f.workflow) params.set('workflow', f.workflow);
  if (f.queue) params.set('queue', f.queue);
  const { prefix, labels } = searched(f.search);
  if (prefix) params.set('id_prefix', prefix);
  for (const [name, value] of labels) params.append('label', `${name}:${value}`);
  params.set('page_size', String(pageSize));
  if (f.page) params.set('page_token', f.page);
  return params.toString();
}

/** Tells labels from the beginning of an id: "tenant=acme run_01". */
export function searched(text: string): { prefix: string; labels: [string, string][] } {
  const labels: [string, string][] = [];
  let prefix = '';
  for (const word of text.trim().split(/\s+/)) {
    const at = word.indexOf('=');
    if (at > 0) labels.push([word.slice(0, at), word.slice(at + 1)]);
    else if (word) prefix = word;
  }
  return { prefix, labels };
}

/** The same list, as bide lists it. */
export function listWords(f: Filter): string[] {
  const words = ['list'];
  const { labels } = searched(f.search);
  if (f.states.length > 0) words.push('--state', f.states.join(','));
  if (f.workflow) words.push('--workflow', f.workflow);
  if (f.queue) words.push('--queue', f.queue);
  for (const [name, value] of labels) words.push('--label', `${name}=${value}`);
  return words;
}
