// The status page: asks /api every two seconds and draws what it says. No library, no build step.
// Every text of a job is set as text, never as markup: samples are whatever a model has written.
"use strict";

const PERIOD_MS = 2000;
const SAMPLES_PERIOD_MS = 6000;
const TIMEOUT_MS = 10000;
const MAX_POINTS = 500; // of a curve; more are averaged
const SVG = "http://www.w3.org/2000/svg";

const state = {
  jobs: [],          // those at work first
  moreJobs: false,   // there are others behind these
  chosen: "",        // id of the job that is shown
  job: null,
  rows: [],          // of its metrics, in the order in which they came
  cursor: 0,
  samples: [],
  samplesAt: 0,
  workers: null,
  workersError: "",
  server: null,
};

// ---------------------------------------------------------------------------------------- elements

const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function draw(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Puts children into a node only where they differ from what is there: a selection or a scroll
// position stays as long as nothing changes.
function show(node, ...children) {
  const fresh = node.cloneNode(false);
  fresh.append(...children);
  if (fresh.innerHTML !== node.innerHTML) node.replaceChildren(...fresh.childNodes);
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// columns: [{title, number, cell(row) -> string or node, className}]
function fillTable(table, columns, rows, empty, rowClass = () => "") {
  const head = make("thead", {}, make("tr", {}, ...columns.map((column) =>
    make("th", { scope: "col", class: column.number ? "num" : "" }, column.title))));
  const body = make("tbody");
  for (const row of rows) {
    body.append(make("tr", { class: rowClass(row) }, ...columns.map((column) =>
      make("td", { class: column.number ? "num" : column.className || "" }, column.cell(row)))));
  }
  if (rows.length === 0) body.append(make("tr", {}, make("td", { colspan: columns.length, class: "empty" }, empty)));
  show(table, head, body);
}

// ----------------------------------------------------------------------------------------- numbers

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function figure(value, digits = 3) {
  if (!isNumber(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

function count(value) {
  if (!isNumber(value)) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) return `${Number((value / (unit === "k" ? 1e3 : size)).toPrecision(3))}${unit}`;
  }
  return String(Math.round(value));
}

const percent = (ratio) => (isNumber(ratio) ? `${Math.round(100 * Math.min(1, Math.max(0, ratio)))}%` : "–");

function seconds(value) {
  if (!isNumber(value)) return "–";
  if (value < 60) return `${Number(value.toPrecision(2))}s`;
  if (value < 3600) return `${Math.floor(value / 60)}m${String(Math.floor(value % 60)).padStart(2, "0")}s`;
  return `${Math.floor(value / 3600)}h${String(Math.floor((value % 3600) / 60)).padStart(2, "0")}m`;
}

// Since a time of the server's clock, by the server's clock.
function since(time) {
  if (!time || !state.server) return "–";
  return seconds(Math.max(0, (Date.parse(state.server.now) - Date.parse(time)) / 1000));
}

function clockTime(time) {
  return time ? new Date(time).toLocaleTimeString() : "–";
}

function stateClass(name) {
  if (["SUCCEEDED", "RUNNING", "ready"].includes(name)) return "good";
  if (["FAILED", "lost"].includes(name)) return "bad";
  return "waits";
}

const stateMark = (name) => make("span", { class: `state ${stateClass(name)}` }, name);

function bar(ratio) {
  const fill = make("span");
  fill.style.width = percent(ratio);
  return make("span", {}, make("span", { class: "bar" }, fill), percent(ratio));
}

// ----------------------------------------------------------------------------------------- history

// Rows of a lineage are superseded from the first step of any later lineage on; of several rows about
// one step (or about one evaluation of one version) the one of the highest lineage counts.
function surviving(rows) {
  const begins = new Map();
  for (const row of rows) {
    if (row.step === undefined) continue;
    const begin = begins.get(row.lineage);
    if (begin === undefined || row.step < begin) begins.set(row.lineage, row.step);
  }
  const superseded = (row, step) => [...begins].some(([lineage, begin]) => lineage > row.lineage && step >= begin);
  const steps = new Map();
  const evals = new Map();
  for (const row of rows) {
    if (row.step !== undefined) {
      if (superseded(row, row.step)) continue;
      const known = steps.get(row.step);
      if (known === undefined || row.lineage >= known.lineage) steps.set(row.step, row);
    } else if (row.eval_name !== undefined && !superseded(row, row.policy_version)) {
      const key = `${row.eval_name}/${row.policy_version}`;
      const known = evals.get(key);
      if (known === undefined || row.lineage >= known.lineage) evals.set(key, row);
    }
  }
  return {
    steps: [...steps.values()].sort((a, b) => a.step - b.step),
    evals: [...evals.values()].sort((a, b) => a.policy_version - b.policy_version),
  };
}

// Points [x, y] of a curve, averaged in equal runs where there are too many; null breaks the curve.
function points(rows, x, y) {
  const all = rows.map((row) => [x(row), y(row)]).filter(([at]) => isNumber(at));
  if (all.length <= MAX_POINTS) return all.map(([at, value]) => [at, isNumber(value) ? value : null]);
  const size = Math.ceil(all.length / MAX_POINTS);
  const averaged = [];
  for (let i = 0; i < all.length; i += size) {
    const run = all.slice(i, i + size).filter(([, value]) => isNumber(value));
    const middle = all[Math.min(all.length - 1, i + (size >> 1))][0];
    averaged.push([middle, run.length ? run.reduce((sum, [, value]) => sum + value, 0) / run.length : null]);
  }
  return averaged;
}

// ------------------------------------------------------------------------------------------ charts

const WIDTH = 560;
const HEIGHT = 210;
const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 30;

function niceStep(range, most) {
  const rough = range / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

function ticks(low, high, most) {
  const step = niceStep(high - low || 1, most);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) {
    found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  }
  return found;
}

// curves: [{name, color, points, limit, dots}], bands: [{color, low, high}]
function chart(spec) {
  const values = [];
  for (const curve of spec.curves) values.push(...curve.points.map(([, y]) => y));
  for (const band of spec.bands || []) values.push(...band.low.map(([, y]) => y), ...band.high.map(([, y]) => y));
  const finite = values.filter(isNumber);
  const xs = spec.curves.flatMap((curve) => curve.points.map(([x]) => x));
  const head = [make("figcaption", {}, make("h3", {}, spec.title), make("p", {}, spec.text))];
  if (finite.length === 0 || xs.length === 0) {
    return make("figure", { "data-chart": spec.key }, ...head, make("p", { class: "soft" }, "nothing yet"));
  }
  let low = Math.min(...finite, spec.from ?? Infinity);
  let high = Math.max(...finite, spec.to ?? -Infinity);
  if (low === high) { low -= 0.5; high += 0.5; }
  const pad = (high - low) * 0.06;
  if (low !== spec.from) low -= pad;
  if (high !== spec.to) high += pad;
  const xLow = Math.min(...xs);
  const xHigh = Math.max(...xs, xLow + 1);
  const px = (x) => LEFT + ((x - xLow) / (xHigh - xLow)) * (WIDTH - LEFT - RIGHT);
  const py = (y) => TOP + ((high - y) / (high - low)) * (HEIGHT - TOP - BOTTOM);

  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${spec.title}: ${spec.text}` });
  for (const at of ticks(low, high, 4)) {
    svg.append(draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: py(at), y2: py(at) }),
      draw("text", { x: LEFT - 7, y: py(at) + 4, "text-anchor": "end" }, figure(at)));
  }
  svg.append(draw("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
  for (const at of ticks(xLow, xHigh, 6).filter((value) => Number.isInteger(value))) {
    svg.append(draw("text", { x: px(at), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, count(at)));
  }
  for (const band of spec.bands || []) {
    const upper = band.high.filter(([, y]) => isNumber(y));
    const lower = band.low.filter(([, y]) => isNumber(y)).reverse();
    const path = [...upper, ...lower].map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" ");
    if (path) svg.append(draw("polygon", { class: `band f${band.color}`, points: path }));
  }
  for (const curve of spec.curves) {
    let path = "";
    let open = false;
    for (const [x, y] of curve.points) {
      if (y === null) { open = false; continue; }
      path += `${open ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`;
      open = true;
    }
    svg.append(draw("path", { class: `series s${curve.color}${curve.limit ? " limit" : ""}`, d: path }));
    if (curve.dots || curve.points.length === 1) {
      for (const [x, y] of curve.points.filter(([, value]) => value !== null)) {
        svg.append(draw("circle", { class: `f${curve.color}`, cx: px(x), cy: py(y), r: 3.5 }));
      }
    }
  }
  const legend = make("ul", { class: "legend" }, ...spec.curves.map((curve) => {
    const last = curve.points.filter(([, y]) => y !== null).at(-1);
    return make("li", {}, make("span", { class: `swatch b${curve.color}` }), `${curve.name} ${last ? figure(last[1]) : ""}`);
  }));
  const node = make("figure", { "data-chart": spec.key }, ...head, legend, svg);
  addCursor(node, svg, spec, px, xLow, xHigh);
  return node;
}

// What the curves are at the step under the pointer.
function addCursor(node, svg, spec, px, xLow, xHigh) {
  const line = draw("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
  svg.append(line);
  const tip = make("div", { class: "tip", hidden: "" });
  node.append(tip);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const inside = ((event.clientX - box.left) / box.width) * WIDTH;
    const at = xLow + ((inside - LEFT) / (WIDTH - LEFT - RIGHT)) * (xHigh - xLow);
    const nearest = (curve) => curve.points.reduce((best, point) =>
      (best === null || Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best), null);
    const found = nearest(spec.curves[0]);
    if (!found) return;
    line.setAttribute("x1", px(found[0]));
    line.setAttribute("x2", px(found[0]));
    line.style.visibility = "visible";
    tip.textContent = [`${spec.x || "step"} ${count(Math.round(found[0]))}`, ...spec.curves.map((curve) => {
      const point = nearest(curve);
      return `${curve.name} ${point ? figure(point[1]) : "–"}`;
    })].join("\n");
    tip.hidden = false;
  });
  svg.addEventListener("pointerleave", () => {
    line.style.visibility = "hidden";
    tip.hidden = true;
  });
}

function chartsOf(history, job) {
  const { steps, evals } = history;
  const at = (row) => row.step;
  const curve = (name, color, value, more = {}) => ({ name, color, points: points(steps, at, value), ...more });
  const rate = (tokens) => (row) => (row.step_seconds > 0 ? tokens(row) / row.step_seconds : null);
  const share = (part) => (row) => (row.step_seconds > 0 ? part(row) / row.step_seconds : null);
  const reward = [curve("mean", 0, (row) => row.reward_mean)];
  if (evals.length > 0) {
    reward.push({ name: "evaluation", color: 1, dots: true, points: points(evals, (row) => row.policy_version, (row) => row.eval_accuracy) });
  }
  const components = [...new Set(steps.flatMap((row) => Object.keys(row.reward_components || {})))];
  if (components.length > 1) {
    components.slice(0, 4).forEach((name, i) => {
      reward.push(curve(name, 2 + i, (row) => (row.reward_components || {})[name]));
    });
  }
  const bound = steps.length > 0
    ? [[steps[0].step, job.staleness_max], [steps[steps.length - 1].step, job.staleness_max]] : [];
  return [
    { key: "reward", title: "Reward", text: "mean of each step's samples, with one deviation; evaluations at their version", curves: reward,
      bands: [{ color: 0, low: points(steps, at, (row) => row.reward_mean - row.reward_std), high: points(steps, at, (row) => row.reward_mean + row.reward_std) }] },
    { key: "staleness", title: "Staleness", text: "age of the trained tokens, in policy versions", from: 0,
      curves: [curve("median", 0, (row) => row.staleness_p50), curve("oldest", 1, (row) => row.staleness_max),
        { name: "bound", color: 3, limit: true, points: bound }] },
    { key: "throughput", title: "Throughput", text: "tokens per second", from: 0,
      curves: [curve("generated", 0, rate((row) => row.tokens_generated)), curve("trained", 1, rate((row) => row.tokens_trained))] },
    { key: "waiting", title: "Waiting", text: "share of each step: the trainer for samples, engines for work", from: 0,
      curves: [curve("trainer waits", 0, share((row) => row.trainer_wait_seconds)),
        curve("engines idle", 1, share((row) => row.rollout_idle_seconds)),
        curve("weights swap", 2, share((row) => row.weight_swap_seconds))] },
    { key: "entropy", title: "Entropy and KL", text: "nats per token; KL against the policy that sampled", from: 0,
      curves: [curve("entropy", 0, (row) => row.entropy), curve("KL", 1, (row) => row.kl_behavior)] },
    { key: "length", title: "Length", text: "mean tokens of a completion", from: 0,
      curves: [curve("completion", 0, (row) => row.completion_length_mean)] },
  ];
}

// -------------------------------------------------------------------------------- who waits for whom

// Which box of the picture an edge of `waits_for` belongs to.
const BOX_OF_EDGE = {
  prompts: "prompts", rollout: "rollout", env: "rollout", reward: "reward", ref_logprob: "reward",
  staleness: "ready", store: "ready", datastore: "ready", trainer: "trainer", evaluation: "rollout",
};

function edgeOf(waits) {
  const colon = waits.indexOf(":");
  return colon < 0 ? "" : waits.slice(0, colon);
}

function boxesOf(job, pools) {
  const groups = job.groups || {};
  const pool = (role) => {
    const found = pools.filter((one) => one.name === role || one.name.startsWith(`${role}/`));
    if (found.length === 0) return "";
    const ready = found.reduce((sum, one) => sum + one.ready, 0);
    const wanted = found.reduce((sum, one) => sum + (one.wanted ?? one.total), 0);
    return `${ready}/${wanted} ready`;
  };
  const requeued = groups.requeued ? `, ${count(groups.requeued)} again` : "";
  return [
    { key: "prompts", title: "prompts", lines: [`${count(groups.queued ?? 0)} queued${requeued}`] },
    { key: "rollout", title: "rollout", lines: [`${count(groups.leased ?? 0)} being generated`, pool("rollout")] },
    { key: "reward", title: "reward", lines: [`${count(groups.generated ?? 0)} to be scored`, pool("reward")] },
    { key: "ready", title: "ready", lines: [`${count((groups.scored ?? 0) + (groups.ready ?? 0))} groups`, `of ${count(job.prompts_per_step)} a step`] },
    { key: "trainer", title: "trainer", lines: [`${count(groups.claimed ?? 0)} in training`, pool("trainer")] },
  ];
}

function flowPicture(job, pools, lag) {
  const width = 1120;
  const box = 168;
  const gap = (width - 5 * box) / 4;
  const svg = draw("svg", { viewBox: `0 0 ${width} 150`, role: "img", "aria-label": "groups on their way from prompts to the trainer" });
  const blocking = BOX_OF_EDGE[edgeOf(job.waits_for || "")] || "";
  boxesOf(job, pools).forEach((one, i) => {
    const x = i * (box + gap);
    const node = draw("g", { class: `node${one.key === blocking ? " blocks" : ""}`, "data-box": one.key },
      draw("rect", { x: x + 2, y: 10, width: box - 4, height: 80, rx: 10 }),
      draw("text", { class: "title", x: x + 14, y: 34 }, one.title));
    one.lines.filter((line) => line).forEach((line, j) => {
      node.append(draw("text", { class: "count", x: x + 14, y: 56 + 19 * j }, line));
    });
    svg.append(node);
    if (i < 4) {
      const from = x + box;
      svg.append(draw("path", { class: "edge", d: `M${from} 50L${from + gap - 8} 50` }),
        draw("path", { class: "arrow", d: `M${from + gap - 10} 45L${from + gap} 50L${from + gap - 10} 55Z` }));
    }
  });
  const trainer = 4 * (box + gap) + box / 2;
  const rollout = box + gap + box / 2;
  svg.append(draw("path", { class: "edge weights", d: `M${trainer} 92V122H${rollout}V100` }),
    draw("path", { class: "arrow weights", d: `M${rollout - 5} 102L${rollout} 92L${rollout + 5} 102Z` }),
    draw("text", { x: (trainer + rollout) / 2, y: 140, "text-anchor": "middle" }, lag));
  return svg;
}

function weightsText(job) {
  if (!state.workers) return "new weights";
  const mine = state.workers.workers.filter((worker) => worker.role === "rollout" && worker.state === "ready" && worker.jobs.includes(job.id));
  if (mine.length === 0) return "new weights";
  const oldest = Math.min(...mine.map((worker) => worker.version));
  const behind = Math.max(0, job.step - oldest);
  return `new weights: version ${job.step}, engines ${behind === 0 ? "have it" : `up to ${behind} behind`}`;
}

// ------------------------------------------------------------------------------------------- parts

function showServer() {
  const server = state.server;
  if (!server) return;
  const parts = [`${server.role} ${server.version}`];
  if (server.role === "controller") {
    parts.push(server.leads ? `leads${server.leader ? ` (${server.leader})` : ""}`
      : server.leader ? `stands by; ${server.leader} leads` : "nobody leads");
  }
  setText(byId("server"), parts.join(" · "));
}

function showJobs() {
  fillTable(byId("jobs"), [
    { title: "Job", cell: (job) => make("a", { href: `#job=${encodeURIComponent(job.id)}` }, job.id) },
    { title: "State", cell: (job) => stateMark(job.state) },
    { title: "Step", number: true, cell: (job) => `${count(job.step)}/${count(job.steps)}` },
    { title: "Reward", number: true, cell: (job) => (job.step > 0 ? figure(job.reward_mean) : "–") },
    { title: "Evaluation", number: true, cell: (job) => figure(job.eval_accuracy) },
    { title: "Age", number: true, cell: (job) => since(job.created) },
    { title: "Why", cell: (job) => job.reason || "" },
  ], state.jobs, "no job; next: freshet submit JOB.yaml", (job) => (job.id === state.chosen ? "chosen" : ""));
  byId("jobs-more").hidden = !state.moreJobs;
}

function tile(name, value, more = "", extra = null) {
  return make("li", {}, make("span", { class: "name" }, name), make("span", { class: "value" }, value),
    make("span", { class: "more" }, more), extra);
}

function showTiles(job, history) {
  const last = history.steps.at(-1);
  const progress = make("progress", { max: Math.max(1, job.steps), value: Math.min(job.step, job.steps) });
  const tiles = [
    tile("state", stateMark(job.state), job.reason.length < 60 ? job.reason : ""),
    tile("step", `${count(job.step)} of ${count(job.steps)}`, job.lineage > 0 ? `lineage ${job.lineage}` : "", progress),
    tile("reward", job.step > 0 ? figure(job.reward_mean) : "–", last ? `± ${figure(last.reward_std)}` : ""),
    tile("evaluation", figure(job.eval_accuracy), history.evals.length > 0 ? `at version ${history.evals.at(-1).policy_version}, first ${figure(history.evals[0].eval_accuracy)}` : ""),
    tile("staleness", last ? `${figure(last.staleness_p50)} / ${last.staleness_max}` : "–", `median / oldest, bound ${job.staleness_max}, ${job.staleness_policy}`),
  ];
  if (last) {
    const share = (part) => percent(last.step_seconds > 0 ? part / last.step_seconds : null);
    tiles.push(tile("trainer waits", share(last.trainer_wait_seconds), `step took ${seconds(last.step_seconds)}`),
      tile("generated", count(last.step_seconds > 0 ? last.tokens_generated / last.step_seconds : null), "tokens/s"),
      tile("trained", count(last.step_seconds > 0 ? last.tokens_trained / last.step_seconds : null), "tokens/s"));
  }
  const ended = Object.entries(job.ended || {}).filter(([, groups]) => groups > 0);
  if (ended.length > 0) {
    tiles.push(tile("not trained", count(ended.reduce((sum, [, groups]) => sum + groups, 0)), ended.map(([reason, groups]) => `${reason} ${count(groups)}`).join(", ")));
  }
  show(byId("tiles"), ...tiles);
}

function showJob() {
  const job = state.job;
  byId("job").hidden = job === null;
  if (job === null) return;
  const history = surviving(state.rows);
  const pools = state.workers ? state.workers.pools : [];
  setText(byId("job-title"), job.id);
  const waits = byId("waits");
  waits.hidden = !job.waits_for && job.state !== "FAILED";
  setText(waits, job.state === "FAILED" ? `failed: ${job.reason}` : `waits for ${job.waits_for}`);
  const stalled = job.events.filter((event) => event.kind === "stalled" || event.kind === "progress").at(-1);
  waits.className = `banner${job.state === "FAILED" ? " error" : stalled && stalled.kind === "stalled" ? " warning" : ""}`;
  showTiles(job, history);
  const active = Object.keys(job.groups).length > 0;
  setText(byId("flow-text"), active ? "prompt groups now; the box with a heavy border is what the oldest work waits for"
    : "the job is not at work");
  show(byId("flow"), ...(active ? [flowPicture(job, pools, weightsText(job))] : []));
  showCharts(history, job);
  fillTable(byId("events"), [
    { title: "Time", cell: (event) => clockTime(event.time) },
    { title: "What", cell: (event) => event.kind },
    { title: "Text", cell: (event) => event.text },
  ], [...job.events].reverse(), "nothing yet");
  setText(byId("yaml"), job.yaml);
}

let drawnCharts = "";

// Drawn anew when there are new rows, so that a pointer over a curve is not disturbed.
function showCharts(history, job) {
  const mark = `${job.id}/${state.cursor}/${state.rows.length}`;
  if (mark === drawnCharts) return;
  drawnCharts = mark;
  byId("charts").replaceChildren(...chartsOf(history, job).map(chart));
}

function showSamples() {
  setText(byId("samples-text"), state.samples.length > 0 ? "the newest ones that were trained on" : "");
  const components = (sample) => Object.entries(sample.components || {}).map(([name, value]) => `${name} ${figure(value)}`).join(", ");
  const spans = (sample) => (sample.spans || []).map((span) => span.version).join(", ");
  fillTable(byId("samples"), [
    { title: "Step", number: true, cell: (sample) => String(sample.step) },
    { title: "Prompt", className: "text", cell: (sample) => sample.prompt },
    { title: "Completion", className: "text", cell: (sample) => sample.completion + (sample.truncated ? " …" : "") },
    { title: "Reward", number: true, cell: (sample) => figure(sample.reward) },
    { title: "Parts", cell: components },
    { title: "Advantage", number: true, cell: (sample) => figure(sample.advantage) },
    { title: "Tokens", number: true, cell: (sample) => count(sample.tokens) },
    { title: "Versions", number: true, cell: spans },
    { title: "End", cell: (sample) => sample.finish || "" },
  ], state.samples, "none yet");
}

function showWorkers() {
  const known = state.workers || { pools: [], workers: [] };
  setText(byId("workers-text"), state.workersError);
  const weights = (name) => name.startsWith("rollout") || name === "trainer";
  const newest = Math.max(0, ...known.pools.map((pool) => pool.newest_version));
  const reasons = known.pools.some((pool) => pool.wanted_reason)
    ? [{ title: "So many because", cell: (pool) => pool.wanted_reason || "" }] : [];
  fillTable(byId("pools"), [
    { title: "Pool", cell: (pool) => pool.name },
    { title: "Ready", number: true, cell: (pool) => `${pool.ready}/${pool.wanted ?? pool.total}` },
    { title: "Busy", cell: (pool) => (pool.ready > 0 ? bar(pool.busy_ratio) : "–") },
    { title: "Tokens/s", number: true, cell: (pool) => (weights(pool.name) ? count(pool.tokens_per_second) : "") },
    { title: "KV cache", number: true, cell: (pool) => (pool.name.startsWith("rollout") ? percent(pool.kv_cache_used_ratio) : "") },
    { title: "Version", number: true, cell: (pool) => (weights(pool.name) ? String(pool.newest_version) : "") },
    { title: "Behind", number: true, cell: (pool) => (pool.name.startsWith("rollout") && pool.ready > 0 ? String(newest - pool.oldest_version) : "") },
    { title: "Restarts", number: true, cell: (pool) => String(pool.restarts) },
    ...reasons,
  ], known.pools, "no workers");
  fillTable(byId("workers"), [
    { title: "Worker", cell: (worker) => worker.name },
    { title: "State", cell: (worker) => stateMark(worker.state) },
    { title: "Seen", number: true, cell: (worker) => since(worker.last_seen) },
    { title: "Busy", cell: (worker) => bar(worker.busy_ratio) },
    { title: "Tokens/s", number: true, cell: (worker) => (weights(worker.role) ? count(worker.tokens_per_second) : "") },
    { title: "Version", number: true, cell: (worker) => (weights(worker.role) ? String(worker.version) : "") },
    { title: "Job", cell: (worker) => worker.jobs.join(", ") },
    { title: "Waits for", cell: (worker) => worker.waits_for },
  ], known.workers, "no workers");
}

// -------------------------------------------------------------------------------------------- asking

class ApiError extends Error {}

async function ask(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
  const body = await response.json();
  if (!response.ok) {
    const error = new ApiError(body.error ? body.error.message : `HTTP ${response.status}`);
    error.status = response.status;
    throw error;
  }
  return body;
}

const jobPath = (id) => `api/jobs/${encodeURIComponent(id)}`;

// The job named after '#', else the first that is at work, else the first of the list.
function choose() {
  const named = new URLSearchParams(location.hash.slice(1)).get("job");
  const working = state.jobs.find((job) => ["RUNNING", "STARTING"].includes(job.state)) || state.jobs[0];
  const chosen = named || (working ? working.id : "");
  if (chosen === state.chosen) return;
  Object.assign(state, { chosen, job: null, rows: [], cursor: 0, samples: [], samplesAt: 0 });
}

async function askMetrics(id) {
  for (;;) {
    const page = await ask(`${jobPath(id)}/metrics?after=${state.cursor}&limit=1000`);
    if (id !== state.chosen) return;
    state.rows.push(...page.rows);
    state.cursor = page.cursor;
    if (!page.more) return;
  }
}

async function askJob() {
  const id = state.chosen;
  if (id === "") return;
  try {
    const answer = await ask(jobPath(id));
    if (id !== state.chosen) return;
    state.job = answer.job;
    await askMetrics(id);
    if (performance.now() - state.samplesAt > SAMPLES_PERIOD_MS || state.samplesAt === 0) {
      const found = await ask(`${jobPath(id)}/samples?limit=20`);
      if (id !== state.chosen) return;
      state.samples = found.samples;
      state.samplesAt = performance.now();
    }
  } catch (error) {
    if (!(error instanceof ApiError) || id !== state.chosen) throw error;
    // The job is gone, or was made anew under its name: begin again.
    if (error.status === 404) Object.assign(state, { job: null, rows: [], cursor: 0, samples: [] });
    else if (error.status === 400) Object.assign(state, { rows: [], cursor: 0 });
    else throw error;
  }
}

async function askWorkers() {
  try {
    state.workers = await ask("api/workers");
    state.workersError = "";
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    state.workersError = error.message; // what was known last stays
  }
}

let asking = false;
let askAgain = false;

async function refresh() {
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  const connection = byId("connection");
  try {
    const answer = await ask("api/jobs");
    state.server = answer.server;
    state.jobs = answer.jobs;
    state.moreJobs = answer.more;
    choose();
    await askWorkers();
    await askJob();
    connection.className = "";
    setText(connection, "");
  } catch (error) {
    connection.className = "away";
    setText(connection, error instanceof ApiError ? `no answer: ${error.message}` : "no connection, trying again");
  }
  showServer();
  showJobs();
  showJob();
  showSamples();
  showWorkers();
  document.body.dataset.ready = "true";
  asking = false;
  if (askAgain) {
    askAgain = false;
    await refresh();
  }
}

window.addEventListener("hashchange", refresh);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
setInterval(() => { if (!document.hidden) refresh(); }, PERIOD_MS);
refresh();
