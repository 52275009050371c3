const puppeteer = require('puppeteer');
(async () => {
  const browser = await puppeteer.launch({ headless: 'new', args: ['--no-sandbox'] });
  const page = await browser.newPage();
  await page.goto('https://example.com', { waitUntil: 'networkidle0' });
  const titles = await page.$$eval('h1, h2', (els) => els.map((e) => e.textContent.trim()));
  console.table(titles.map((t, i) => ({ i, t })));
  await page.screenshot({ path: 'shot.png' });
  await browser.close();
})().catch((e) => { console.error(e); process.exitCode = 1; });
