"use strict";
const now = document.getElementById("now");
const state = document.getElementById("state");
async function refresh() {
  try {
    const answer = await fetch("/console/now", { credentials: "same-origin" });
    if (answer.status === 401) { location.reload(); return; }
    if (!answer.ok) throw new Error(String(answer.status));
    now.innerHTML = await answer.text(); // our own template, escaped on the server
    state.textContent = "live";
  } catch {
    state.textContent = "the gateway does not answer";
  }
}
setInterval(() => { if (!document.hidden) refresh(); }, 2000);
