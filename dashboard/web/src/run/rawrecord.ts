import { Raw } from '../exact/parse.ts';

/** A part of an answer as JSON again, with what was kept as text put back as it was. */
export function rawRecord(value: unknown): string {
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map(rawRecord).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const members = Object.entries(value).filter(([, v]) => v !== undefined);
  return `{${members.map(([k, v]) => `${JSON.stringify(k)}:${rawRecord(v)}`).join(',')}}`;
}
