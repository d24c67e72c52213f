/** The same view from a terminal: a line for curl and one for bide. */
export interface Commands {
  curl: string;
  cli: string;
}

/** Quotes a word for a POSIX shell, if it needs that. */
export function quote(word: string): string {
  return /^[\w@%+=:,./~-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

const defaultServer = 'http://127.0.0.1:7433';

/** The line for a path of the API, such as "/v1/runs/x". */
export function curl(server: string, path: string, withKey: boolean, method = 'GET', body?: string): string {
  const words = ['curl', '-s'];
  if (method !== 'GET') words.push('-X', method);
  if (withKey) words.push('-H', '"Authorization: Bearer $BIDE_TOKEN"');
  if (body !== undefined) words.push('-H', quote('Content-Type: application/json'), '-d', quote(body));
  words.push(quote(server + path));
  return words.join(' ');
}

/** The line for a command of bide, such as "show x". */
export function cli(server: string, ...words: string[]): string {
  return ['bide', ...words.map(quote), ...(server === defaultServer ? [] : ['--server', quote(server)])].join(' ');
}
