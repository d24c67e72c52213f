/**
 * Where the dashboard is mounted, "/" or such as "/bide/". The page says how many
 * steps up that is; so it works behind whatever a proxy puts before its paths.
 */
export const root = new URL(document.documentElement.dataset['root'] ?? './', location.href).pathname;

/** The server refuses all that changes anything, and says so in the page. */
export const serverReadsOnly = document.documentElement.dataset['readOnly'] === 'true';

/** The server's URL, as commands name it. */
export const server = (location.origin + root).replace(/\/$/, '');
