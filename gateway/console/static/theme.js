// The chosen colours before the first paint: read here, changed in console.js.
"use strict";
(() => {
  const chosen = localStorage.getItem("sluicegate-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
