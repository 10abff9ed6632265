// The charts of the overview, drawn from /console/series; colours come from the style sheet.
"use strict";
(() => {
  const TICK_MS = 4000;
  const WINDOW_S = 900;
  const charts = new Map();
  let drawn = null;

  const style = () => getComputedStyle(document.documentElement);
  const colour = (name) => style().getPropertyValue(`--${name}`).trim();

  function axes(unit) {
    const ink = colour("mute"), grid = { stroke: colour("line"), width: 1 };
    const font = "11px system-ui, sans-serif";
    return [
      { stroke: ink, font, grid: { show: false }, ticks: { show: false }, size: 18, space: 70, gap: 2, incrs: [60, 120, 300, 600],
        values: (_, marks) => marks.map((at) => new Date(at * 1000).toISOString().slice(11, 16)) },
      { stroke: ink, font, grid, ticks: { show: false }, space: 26, gap: 4,
        // A class far over its budget has labels like "5000 %".
        size: (_, shown) => Math.max(40, 7 * Math.max(0, ...(shown || []).map((one) => String(one).length)) + 5),
        values: (_, marks) => marks.map((value) => `${+value.toFixed(2)}${unit}`) },
    ];
  }

  function legendTime(plot, at) { return at == null ? "" : new Date(at * 1000).toISOString().slice(11, 19); }

  function windowOf(instants) { const end = instants[instants.length - 1]; return [end - WINDOW_S, end]; }

  function line(label, stroke, extra = {}) {
    return { label, stroke, width: 1.5, points: { show: false }, spanGaps: true, ...extra };
  }

  function frame(box, height, unit) {
    return {
      width: Math.max(160, box.clientWidth), height,
      padding: [6, 14, 0, 0], legend: { show: true, live: true },
      cursor: { y: false, points: { size: 5 }, sync: { key: "console" }, drag: { x: false, y: false } },
      axes: axes(unit),
    };
  }

  function ages(box, name) {
    const budget = drawn.budgets[name];
    const share = drawn.classes[name].age_s.map((age) => age == null ? null : age / budget.budget_s * 100);
    const options = {
      ...frame(box, 84, " %"),
      scales: { x: { range: () => windowOf(drawn.at) }, y: { range: (_, low, high) => [0, Math.max(100, (high || 0) * 1.05)] } },
      series: [{ value: legendTime }, line("share of the budget", colour("accent"), {
        fill: colour("accent-soft"), value: (_, value) => value == null ? "–" : `${value.toFixed(1)} %` })],
      hooks: { drawAxes: [(plot) => {
        const { ctx, bbox } = plot, y = (value) => plot.valToPos(value, "y", true);
        ctx.save();
        ctx.fillStyle = colour("bad-soft");
        ctx.fillRect(bbox.left, y(100), bbox.width, 2);
        ctx.strokeStyle = colour("warn");
        ctx.setLineDash([4, 4]);
        ctx.beginPath();
        ctx.moveTo(bbox.left, y(budget.door_share * 100));
        ctx.lineTo(bbox.left + bbox.width, y(budget.door_share * 100));
        ctx.stroke();
        ctx.restore();
      }] },
    };
    return [options, [drawn.at, share]];
  }

  function rates(box, name) {
    const one = drawn.classes[name];
    const value = (_, number) => number == null ? "–" : `${+number.toFixed(1)}/s`;
    const options = {
      ...frame(box, 100, ""),
      scales: { x: { range: () => windowOf(drawn.at) }, y: { range: (_, low, high) => [0, Math.max(1, (high || 0) * 1.1)] } },
      series: [
        { value: legendTime },
        line("admitted", colour("admitted"), { value, width: 2.5 }),
        line("sent", colour("sent"), { value, dash: [5, 3] }),
        line("refused", colour("refused"), { value }),
        line("expired", colour("expired"), { value }),
      ],
    };
    return [options, [drawn.at, one.admitted, one.sent, one.refused, one.expired]];
  }

  const MAKERS = { age: ages, rates };

  function draw() {
    for (const box of document.querySelectorAll("[data-chart]")) {
      const name = box.dataset.class;
      if (!drawn || !drawn.classes[name]) continue;
      if (drawn.at.length < 2) {
        if (!box.firstChild) box.append(Object.assign(document.createElement("p"), { className: "empty", textContent: "The first points come in a few seconds." }));
        continue;
      }
      const [options, columns] = MAKERS[box.dataset.chart](box, name);
      const known = charts.get(box);
      if (known) known.setData(columns);
      else {
        box.replaceChildren();
        charts.set(box, new uPlot(options, columns, box));
      }
    }
    for (const [box, plot] of charts) {
      if (!box.isConnected) { plot.destroy(); charts.delete(box); }
    }
  }

  function again() {
    for (const [box, plot] of charts) { plot.destroy(); box.replaceChildren(); }
    charts.clear();
    draw();
  }

  async function fetchSeries() {
    if (document.hidden || !document.querySelector("[data-chart]")) return;
    try {
      const answer = await fetch("/console/series", { credentials: "same-origin", headers: { "HX-Request": "true" } });
      if (!answer.ok) return; // the page itself says what is wrong
      drawn = await answer.json();
      draw();
    } catch { /* the page itself says that nobody answers */ }
  }

  let width = 0;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    for (const [box, plot] of charts) plot.setSize({ width: Math.max(160, box.clientWidth), height: plot.height });
  }).observe(document.body);
  window.addEventListener("console:colours", again);
  setInterval(fetchSeries, TICK_MS);
  fetchSeries();
})();
