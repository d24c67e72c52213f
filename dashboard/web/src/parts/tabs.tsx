import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';

interface Props<T extends string> {
  names: readonly T[];
  titles: Record<T, string>;
  current: T;
  onTab(name: T): void;
  children: ComponentChildren;
}

/** Tabs as the ARIA practices have them: arrows go from one to the next. */
export function Tabs<T extends string>({ names, titles, current, onTab, children }: Props<T>) {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  // on a narrow screen not all fit; the page itself must not move
  useLayoutEffect(() => {
    const box = list.current;
    const tab = box?.querySelector<HTMLElement>(`[data-tab="${current}"]`);
    if (!box || !tab) return;
    const { left, right } = tab.getBoundingClientRect();
    const { left: from, right: to } = box.getBoundingClientRect();
    if (right > to) box.scrollLeft += right - to;
    else if (left < from) box.scrollLeft -= from - left;
  }, [current]);
  const move = (e: KeyboardEvent): void => {
    const at = names.indexOf(current);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + names.length, Home: 0, End: names.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const next = names[to % names.length];
    if (next === undefined) return;
    onTab(next);
    list.current?.querySelector<HTMLElement>(`[data-tab="${next}"]`)?.focus();
  };
  return (
    <section class="tabs">
      <div role="tablist" ref={list} onKeyDown={move}>
        {names.map((name) => (
          <button
            key={name}
            type="button"
            role="tab"
            data-tab={name}
            id={`${id}-${name}`}
            aria-selected={name === current}
            aria-controls={`${id}-panel`}
            tabIndex={name === current ? 0 : -1}
            onClick={() => onTab(name)}
          >
            {titles[name]}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${current}`} class="panel">
        {children}
      </div>
    </section>
  );
}
