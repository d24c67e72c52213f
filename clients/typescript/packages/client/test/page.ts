import { settle } from './clock.js';

class FakeDocument extends EventTarget {
  visibilityState = 'visible';
}

/** What a browser has and node has not, until it is removed. */
export class FakePage {
  readonly document = new FakeDocument();
  readonly window = new EventTarget();
  readonly navigator = { onLine: true, locks: new FakeLocks() };
  readonly #before = new Map<string, PropertyDescriptor | undefined>();

  constructor(withLocks = true) {
    if (!withLocks) Object.assign(this.navigator, { locks: undefined });
    for (const [name, value] of Object.entries({
      document: this.document, window: this.window, navigator: this.navigator, BroadcastChannel: FakeChannel,
    })) {
      this.#before.set(name, Object.getOwnPropertyDescriptor(globalThis, name));
      Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
    }
  }

  hide(): void {
    this.document.visibilityState = 'hidden';
    this.document.dispatchEvent(new Event('visibilitychange'));
  }

  show(): void {
    this.document.visibilityState = 'visible';
    this.document.dispatchEvent(new Event('visibilitychange'));
  }

  offline(): void {
    this.navigator.onLine = false;
    this.window.dispatchEvent(new Event('offline'));
  }

  online(): void {
    this.navigator.onLine = true;
    this.window.dispatchEvent(new Event('online'));
  }

  remove(): void {
    FakeChannel.all.clear();
    for (const [name, descriptor] of this.#before) {
      if (descriptor) Object.defineProperty(globalThis, name, descriptor);
      else Reflect.deleteProperty(globalThis, name);
    }
  }
}

/** Web Locks as far as they are used here: exclusive ones, in the order of asking. */
class FakeLocks {
  readonly held = new Map<string, number>();
  readonly #waiting: { name: string; grant: () => void }[] = [];

  async request(name: string, options: { signal: AbortSignal }, fn: () => Promise<void> | undefined): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const entry = { name, grant: resolve };
      this.#waiting.push(entry);
      options.signal.addEventListener('abort', () => {
        const at = this.#waiting.indexOf(entry);
        if (at >= 0) this.#waiting.splice(at, 1);
        reject(new DOMException('aborted', 'AbortError'));
      });
      void settle().then(() => this.#next(name));
    });
    try {
      await fn();
    } finally {
      this.held.delete(name);
      this.#next(name);
    }
  }

  #next(name: string): void {
    if (this.held.has(name)) return;
    const at = this.#waiting.findIndex((entry) => entry.name === name);
    const entry = at < 0 ? undefined : this.#waiting.splice(at, 1)[0];
    if (!entry) return;
    this.held.set(name, 1);
    entry.grant();
  }
}

/** Tabs that hear each other. */
export class FakeChannel {
  static readonly all = new Set<FakeChannel>();
  onmessage: ((e: { data: unknown }) => void) | null = null;
  readonly name: string;
  /** Messages are lost, as from a tab that hangs. */
  static mute = false;

  constructor(name: string) {
    this.name = name;
    FakeChannel.all.add(this);
  }

  postMessage(data: unknown): void {
    const copy: unknown = structuredClone(data);
    if (FakeChannel.mute) return;
    for (const other of FakeChannel.all) {
      if (other !== this && other.name === this.name) queueMicrotask(() => other.onmessage?.({ data: copy }));
    }
  }

  close(): void {
    FakeChannel.all.delete(this);
    this.onmessage = null;
  }
}
