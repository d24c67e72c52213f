// What the cards show of what the service says. All of it is text: nothing that a
// provider writes becomes a part of the page.

export interface Weather {
  place: string;
  celsius: number;
  sky: string;
}

export interface News {
  headlines: string[];
}

export interface Stocks {
  prices: { symbol: string; price: number; change: number }[];
}

export interface Notifications {
  unread: number;
  latest: string;
}

export function showWeather({ place, celsius, sky }: Weather): Node[] {
  return [element('p', 'big', `${celsius.toFixed(1)} °C`), element('p', 'faint', `${place}, ${sky}`)];
}

export function showNews({ headlines }: News): Node[] {
  const list = element('ul', 'headlines');
  list.append(...headlines.map((headline) => element('li', '', headline)));
  return [list];
}

export function showStocks({ prices }: Stocks): Node[] {
  const table = element('table', '');
  for (const { symbol, price, change } of prices) {
    const row = element('tr', '');
    const head = element('th', '', symbol);
    head.setAttribute('scope', 'row');
    row.append(head, element('td', '', price.toFixed(2)), element('td', change < 0 ? 'down' : 'up', `${change < 0 ? '−' : '+'}${Math.abs(change).toFixed(2)} %`));
    table.append(row);
  }
  return [table];
}

export function showNotifications({ unread, latest }: Notifications): Node[] {
  return [element('p', 'big', unread === 0 ? 'None' : `${unread} unread`), element('p', 'faint', latest)];
}

function element(tag: string, className: string, text = ''): HTMLElement {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}
