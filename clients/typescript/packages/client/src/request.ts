import type { paths } from './schema.js';

type Methods = 'get' | 'post' | 'put' | 'delete';
type Json<C> = C extends { content: { 'application/json': infer B } } ? B : never;
/** undefined for an answer without content. */
type Content<R> = R extends { content: { 'application/json': infer B } } ? B : R extends { content?: never } ? undefined : never;
type Success<R> = { [S in keyof R]: S extends 200 | 202 | 204 ? Content<R[S]> : never }[keyof R];
type Part<O, K extends string> = O extends { parameters: infer P } ? (K extends keyof P ? NonNullable<P[K]> : never) : never;
type Known<P> = [P] extends [never] ? undefined : P;

export type Path = keyof paths;
export type MethodOf<P extends Path> = {
  [M in Methods]: paths[P] extends { [m in M]: infer O } ? ([O] extends [undefined] ? never : M) : never;
}[Methods];
/** GET is get: requests are written as HTTP has it, the schema as OpenAPI. */
export type Method<P extends Path, V extends string> = Lowercase<V> & MethodOf<P>;
type Operation<P extends Path, M extends MethodOf<P>> = NonNullable<paths[P][M & keyof paths[P]]>;

/** What a request to the API may carry, as openapi.yaml has it. */
export interface RequestOptions<P extends Path, M extends MethodOf<P>> {
  /** What stands in braces in the path. */
  path?: Known<Part<Operation<P, M>, 'path'>> | undefined;
  query?: Known<Part<Operation<P, M>, 'query'>> | undefined;
  body?: Operation<P, M> extends { requestBody?: infer B } ? Json<NonNullable<B>> : undefined;
  headers?: Record<string, string> | undefined;
  signal?: AbortSignal | undefined;
}

/** What the server answers, undefined where that has no content. */
export type Reply<P extends Path, M extends MethodOf<P>> = Operation<P, M> extends { responses: infer R } ? Success<R> : never;

/** A path with its braces filled in, and a query. */
export function pathOf(template: string, path: Record<string, unknown> = {}, query: Record<string, unknown> = {}): string {
  const filled = template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = path[name];
    if (value === undefined || value === '') throw new TypeError(`path.${name} is missing for ${template}`);
    return encodeURIComponent(String(value));
  });
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null) search.append(name, String(one));
  }
  const text = search.toString();
  return text ? `${filled}?${text}` : filled;
}
