// The wall: four loops on one scheduler, each with a card.
import { createPollScheduler } from '@bide/client';
import { addCard } from './card.ts';
import { showNews, showNotifications, showStocks, showWeather } from './show.ts';

const scheduler = createPollScheduler();
const redraw = [
  addCard(scheduler, { name: 'weather', title: 'Weather', intervalMs: 4_000, show: showWeather }),
  addCard(scheduler, { name: 'news', title: 'News', intervalMs: 8_000, show: showNews }),
  addCard(scheduler, { name: 'stocks', title: 'Stocks', intervalMs: 2_000, show: showStocks }),
  addCard(scheduler, { name: 'notifications', title: 'Notifications', intervalMs: 6_000, show: showNotifications }),
];

const line = document.querySelector<HTMLElement>('#page');
function draw(): void {
  const online = navigator.onLine;
  if (line) {
    line.textContent = online ? 'Online' : 'Offline: all loops wait';
    line.dataset.state = online ? 'online' : 'offline';
  }
  for (const one of redraw) one();
}

// Ages and countdowns go on by themselves. Nobody sees them on a hidden page.
setInterval(() => {
  if (!document.hidden) draw();
}, 250);
document.addEventListener('visibilitychange', draw);
addEventListener('online', draw);
addEventListener('offline', draw);
draw();
