// A real Chromium, driven line by line: a JSON object per line comes in, one goes out for each.
// {"do": "goto" | "click" | "fill" | "press" | "text" | "eval" | "shot" | "wait" | "colours" | "size" | "faults", ...}
// "faults" tells every console error, page error and violation of the content security policy so far.
"use strict";
const { chromium } = require("playwright-core");
const readline = require("readline");

const faults = [];
const WAIT_MS = 45000;

async function main() {
  const browser = await chromium.launch({
    executablePath: process.argv[2],
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, timezoneId: "UTC" });
  // Before any script of the page: a violation is an event, not always a line on the console.
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) faults.push(message.text()); });
  page.on("pageerror", (error) => faults.push(String(error)));

  const verbs = {
    goto: async (order) => { const answer = await page.goto(order.url); return answer && answer.status(); },
    click: (order) => page.click(order.selector),
    fill: (order) => page.fill(order.selector, order.text),
    press: (order) => page.keyboard.press(order.key),
    text: (order) => page.innerText(order.selector),
    wait: (order) => page.waitForSelector(order.selector, { state: order.state || "visible" }).then(() => true),
    eval: (order) => page.evaluate(order.script),
    shot: (order) => page.screenshot({ path: order.path, fullPage: Boolean(order.full) }).then(() => order.path),
    colours: (order) => page.emulateMedia({ colorScheme: order.scheme }),
    size: (order) => page.setViewportSize({ width: order.width, height: order.height }),
    url: async () => page.url(),
    faults: async () => faults.splice(0),
  };
  process.stdout.write(JSON.stringify({ event: "ready" }) + "\n");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    let answer;
    try {
      answer = { event: "done", result: (await verbs[order.do](order)) ?? null };
    } catch (error) {
      answer = { event: "failed", reason: String(error) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  await browser.close();
}

main().catch((error) => { console.error(error); process.exit(1); });
