// Lag over time, stage upon stage, as SVG. Each band is what its stage adds; the top is how far behind consumers are.

import { fill, h, s } from "./dom.js";
import { clock, duration, zone } from "./format.js";
import { STAGES, STAGE_NAMES } from "./parts.js";

const H = 250, LEFT = 62, RIGHT = 12, TOP = 12, BOTTOM = 26;
const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400];

// Seconds behind by stage, none less than the stage before; null where a stage was not known.
export function stacked(stages, at) {
  let below = 0;
  return STAGES.map((stage) => {
    const lag = stages[stage][at];
    if (lag === null) return null;
    below = Math.max(below, lag);
    return below;
  });
}

function step(top) {
  const wanted = top / 4;
  return STEPS.find((one) => one >= wanted) ?? Math.ceil(wanted / 86400) * 86400;
}

export function lagChart(label) {
  let W = 960; // as wide as it is shown: its labels keep their size
  const drawing = s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label, class: "lag", tabindex: 0 });
  const said = h("div", { class: "reading", role: "status" });
  const node = h("figure", { "data-own": true, class: "chart" }, said, drawing,
    h("figcaption", {}, h("ul", { class: "legend" }, STAGES.map((stage) =>
      h("li", {}, h("i", { class: `swatch stage-${stage}` }), STAGE_NAMES[stage])))));
  let times = [], rows = [], from = 0, to = 1, top = 1, at = null;
  const x = (ms) => LEFT + ((ms - from) / (to - from)) * (W - LEFT - RIGHT);
  const y = (lag) => TOP + (1 - Math.min(lag, top) / top) * (H - TOP - BOTTOM);

  // Runs of neighbours where a stage and the one below are known.
  function band(place) {
    const paths = [];
    let run = [];
    const close = () => {
      if (run.length) {
        const upper = run.map((one) => `${x(times[one]).toFixed(1)},${y(rows[one][place]).toFixed(1)}`);
        const lower = run.map((one) => `${x(times[one]).toFixed(1)},${y(below(one, place)).toFixed(1)}`).reverse();
        paths.push(`M${upper.join("L")}L${lower.join("L")}Z`);
      }
      run = [];
    };
    times.forEach((_, one) => { if (rows[one][place] === null) close(); else run.push(one); });
    close();
    return paths.join("");
  }
  const below = (one, place) => rows[one].slice(0, place).findLast((lag) => lag !== null) ?? 0;

  function draw() {
    const grid = step(top);
    const lines = [];
    for (let lag = 0; lag <= top * 1.001; lag += grid) {
      lines.push(s("line", { x1: LEFT, x2: W - RIGHT, y1: y(lag), y2: y(lag), class: "grid" }),
        s("text", { x: LEFT - 8, y: y(lag) + 4, class: "tick", "text-anchor": "end" }, lag ? duration(lag) : "0"));
    }
    const labels = Math.max(2, Math.min(6, Math.floor((W - LEFT) / 70)));
    const every = Math.max(1, Math.ceil((to - from) / 60_000 / labels)) * 60_000;
    for (let ms = Math.ceil(from / every) * every; ms <= to; ms += every) {
      lines.push(s("text", { x: x(ms), y: H - 8, class: "tick", "text-anchor": "middle" }, clock(ms).slice(0, 5)));
    }
    const bands = STAGES.map((stage, place) => s("path", { d: band(place), class: `band stage-${stage}` }));
    const hair = at === null ? null
      : s("line", { x1: x(times[at]), x2: x(times[at]), y1: TOP, y2: H - BOTTOM, class: "hair" });
    fill(drawing, [...lines, ...bands, hair]);
    read();
  }

  function read() {
    const one = at ?? times.length - 1;
    if (one < 0) { fill(said, ["no samples yet"]); return; }
    const parts = STAGES.map((stage, place) => {
      const lag = rows[one][place];
      return lag === null ? `${STAGE_NAMES[stage]} not known` : `${STAGE_NAMES[stage]} +${duration(Math.max(0, lag - below(one, place)))}`;
    });
    const whole = rows[one].at(-1);
    fill(said, [h("b", {}, at === null ? "now" : `${clock(times[one])} ${zone(times[one])}`), ` ${duration(whole)} behind`,
      h("span", { class: "reading-parts" }, parts.join(" · "))]);
  }

  function point(clientX) {
    const box = drawing.getBoundingClientRect();
    const ms = from + (((clientX - box.left) / box.width) * W - LEFT) / (W - LEFT - RIGHT) * (to - from);
    let nearest = 0;
    times.forEach((time, one) => { if (Math.abs(time - ms) < Math.abs(times[nearest] - ms)) nearest = one; });
    at = times.length ? nearest : null;
    draw();
  }
  new ResizeObserver(() => {
    const width = Math.max(240, Math.round(drawing.clientWidth));
    if (width === W || !drawing.clientWidth) return;
    W = width;
    drawing.setAttribute("viewBox", `0 0 ${W} ${H}`);
    draw();
  }).observe(drawing);
  drawing.addEventListener("pointermove", (event) => point(event.clientX));
  drawing.addEventListener("pointerleave", () => { at = null; draw(); });
  drawing.addEventListener("blur", () => { at = null; draw(); });
  drawing.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !times.length) return;
    event.preventDefault();
    at = Math.max(0, Math.min(times.length - 1, (at ?? times.length - 1) + by));
    draw();
  });

  return {
    node,
    update(answer, minutes, nowMs) {
      const held = at === null ? null : times[at];
      times = answer.at_ms.map(Number);
      rows = times.map((_, one) => stacked(answer.stages, one));
      [from, to] = [nowMs - minutes * 60_000, nowMs];
      const highest = Math.max(1, ...rows.flat().filter((lag) => lag !== null));
      top = Math.ceil((highest * 1.08) / step(highest)) * step(highest);
      at = held === null ? null : Math.max(0, times.indexOf(held));
      if (!times.length) at = null;
      draw();
    },
  };
}
