// What the pages do besides following links: fresh data every two seconds, questions before acts, colours.
"use strict";
(() => {
  const TICK_MS = 2000;
  const body = document.body;
  const stale = document.getElementById("stale");
  let freshAt = Date.now();

  // -- fresh data ------------------------------------------------------------------------------------------------------
  let busy = false;
  setInterval(() => {
    if (document.hidden || busy || document.querySelector("dialog[open]")) return;
    body.dispatchEvent(new CustomEvent("console:tick"));
  }, TICK_MS);

  function complain(reason) {
    const seconds = Math.round((Date.now() - freshAt) / 1000);
    stale.textContent = `${reason}. What you see is ${seconds} s old.`;
    stale.hidden = false;
    body.classList.add("stale");
  }
  function fresh() {
    freshAt = Date.now();
    if (!stale.hidden) {
      stale.hidden = true;
      stale.textContent = "";
      body.classList.remove("stale");
    }
  }
  body.addEventListener("htmx:before:request", () => { busy = true; });
  body.addEventListener("htmx:finally:request", () => { busy = false; });
  body.addEventListener("htmx:before:response", (event) => {
    const response = event.detail.ctx.response;
    if (response && response.status >= 400) {
      const reason = response.headers.get("X-Console-Reason");
      if (response.status !== 401) complain(reason || `The gateway answers ${response.status}`);
    } else fresh();
  });
  body.addEventListener("htmx:error", () => complain("The gateway does not answer"));

  // -- questions before acts -------------------------------------------------------------------------------------------
  const sure = document.getElementById("sure");
  body.addEventListener("submit", (event) => {
    const form = event.target;
    const button = event.submitter;
    if (form.method === "dialog" || form.dataset.sure === "yes") {
      delete form.dataset.sure;
      return;
    }
    const question = (button && button.dataset.ask) || form.dataset.ask;
    if (!question) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    document.getElementById("sure-title").textContent = question;
    document.getElementById("sure-text").textContent = (button && button.dataset.means) || form.dataset.means || "";
    document.getElementById("sure-yes").textContent = button ? button.textContent.trim() : "Do it";
    sure.returnValue = "no";
    sure.showModal();
    sure.addEventListener("close", () => {
      if (sure.returnValue !== "yes") return;
      form.dataset.sure = "yes";
      form.requestSubmit(button);
    }, { once: true });
  }, true);

  // -- colours ---------------------------------------------------------------------------------------------------------
  const SIGNS = { auto: "◐", light: "☀", dark: "☾" };
  const NAMES = { auto: "as the system has them", light: "light", dark: "dark" };
  const theme = document.getElementById("theme");
  function current() { return document.documentElement.dataset.theme || "auto"; }
  function showTheme() {
    theme.textContent = SIGNS[current()];
    theme.setAttribute("aria-label", `Colours: ${NAMES[current()]}`);
    theme.title = `Colours: ${NAMES[current()]}`;
  }
  theme.addEventListener("click", () => {
    const next = { auto: "light", light: "dark", dark: "auto" }[current()];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    localStorage.setItem("sluicegate-theme", next);
    showTheme();
    window.dispatchEvent(new Event("console:colours"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("console:colours")));
  showTheme();

  // -- the login link: one click less, while previews that run no script do not spend it ------------------------------
  const link = document.getElementById("link-form");
  if (link) link.requestSubmit();

  // -- faults of a policy lead to their line ---------------------------------------------------------------------------
  body.addEventListener("click", (event) => {
    const fault = event.target.closest("[data-line]");
    const editor = document.getElementById("source");
    if (!fault || !editor || editor.tagName !== "TEXTAREA") return;
    event.preventDefault();
    const lines = editor.value.split("\n");
    const line = Math.min(Number(fault.dataset.line), lines.length);
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    editor.focus();
    editor.setSelectionRange(start, start + lines[line - 1].length);
    editor.scrollTop = (line - 4) * parseFloat(getComputedStyle(editor).lineHeight);
  });
})();
