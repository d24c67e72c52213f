import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const here = dirname(fileURLToPath(import.meta.url));

it('the examples of the README compile', () => {
  const readme = readFileSync(join(here, '../../../README.md'), 'utf8');
  const examples = [...readme.matchAll(/^```tsx?\n([\s\S]*?)^```$/gm)].map((match) => match[1] ?? '');
  assert.equal(examples.length, 3);
  mkdirSync(join(here, 'readme'), { recursive: true });
  const files = examples.map((text, i) => {
    const file = join(here, 'readme', `example${i}.${text.includes('</') ? 'tsx' : 'ts'}`);
    writeFileSync(file, `${text}\nexport {};\n`);
    return file;
  });
  const program = ts.createProgram(files, {
    strict: true, noEmit: true, skipLibCheck: true, target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler, jsx: ts.JsxEmit.ReactJSX, types: [],
  });
  const host = { getCanonicalFileName: (name: string) => name, getCurrentDirectory: () => here, getNewLine: () => '\n' };
  assert.equal(ts.formatDiagnostics(ts.getPreEmitDiagnostics(program), host), '');
});
