import type { Clock } from './clock.js';
import type { Http } from './http.js';
import type { Hub } from './hub.js';
import type { Lead } from './lead.js';
import type { Notifier } from './notify.js';
import type { Page } from './page.js';
import type { OpenSource } from './source.js';
import type { Tabs } from './tabs.js';

/** How news of a run may come: 'auto' is the best that works; the others are for who
 * knows better. */
export type Transport = 'auto' | 'sse' | 'longpoll' | 'poll';

/** What everything that one client watches has in common. */
export interface Env {
  readonly http: Http;
  readonly clock: Clock;
  readonly random: () => number;
  readonly transport: Transport;
  readonly page: Page;
  readonly notifier: Notifier;
  readonly tabs: Tabs | undefined;
  /** Which tab asks; undefined where each does. */
  readonly lead: Lead | undefined;
  readonly open: OpenSource;
  /** The shared stream; undefined when the transport has none. */
  readonly hub: Hub | undefined;
  /** The least time between two checks, in milliseconds. */
  readonly floorMs: number;
  readonly jitter: number;
  /** Long polls in flight, which hold a connection each. */
  longPolls: number;
  /** What sleeps while the page does. */
  readonly sleepers: Set<Sleeper>;
}

/** Something that asks the server for as long as the page is shown and online. */
export interface Sleeper {
  /** Stops at once, and forgets what is in flight. */
  sleep(): void;
  /** Goes on: after delayMs if it is overdue, else when it would have. */
  wake(delayMs: number): void;
  overdue(): boolean;
  /** What it waits between two checks, by which the returning page orders. */
  intervalMs(): number;
  destroy(): void;
}
