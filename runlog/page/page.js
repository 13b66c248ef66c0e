// What the status page and a run's report share: elements, numbers, the surviving history, charts and
// tables. No library, no build step. Every text of a job is set as text, never as markup: samples are
// whatever a model has written.
"use strict";

const MAX_POINTS = 500; // of a curve; more are averaged
const COLORS = 7;
const SVG = "http://www.w3.org/2000/svg";

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

function tile(name, value, more = "", extra = null) {
  return make("li", {}, make("span", { class: "name" }, name), make("span", { class: "value" }, value),
    make("span", { class: "more" }, more), extra);
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

function fillSamples(table, samples) {
  const components = (sample) => Object.entries(sample.components).map(([name, value]) => `${name} ${figure(value)}`).join(", ");
  fillTable(table, [
    { title: "Step", number: true, cell: (sample) => String(sample.step) },
    { title: "Prompt", className: "text", cell: (sample) => sample.prompt },
    { title: "Completion", className: "text", cell: (sample) => sample.completion + (sample.truncated ? " …" : "") },
    { title: "Reward", number: true, cell: (sample) => figure(sample.reward) },
    { title: "Parts", cell: components },
    { title: "Advantage", number: true, cell: (sample) => figure(sample.advantage) },
    { title: "Tokens", number: true, cell: (sample) => count(sample.tokens) },
    { title: "Versions", number: true, cell: (sample) => sample.spans.map((span) => span.version).join(", ") },
    { title: "End", cell: (sample) => sample.finish },
  ], samples, "none yet");
}

// ----------------------------------------------------------------------------------------- numbers

// Beyond 1e300 the difference of two numbers may not be finite.
const isNumber = (value) => typeof value === "number" && Math.abs(value) <= 1e300;

// JSON has null for a number that is not finite; arithmetic takes null for 0.
const num = (value) => value ?? NaN;

const UNITS = [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"], [0, 1, ""]]; // from, unit, name

function figure(value, digits = 3) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e12)) return value.toExponential(2);
  const [, unit, name] = UNITS.find(([from]) => size >= from);
  return `${Number((value / unit).toPrecision(digits))}${name}`;
}

const count = (value) => (isNumber(value) && Math.abs(value) < 1e4 ? String(Math.round(value)) : figure(value));

const percent = (ratio) => (isNumber(ratio) ? `${Math.round(100 * Math.min(1, Math.max(0, ratio)))}%` : "–");

function seconds(value) {
  if (!isNumber(value)) return "–";
  if (value < 60) return `${Number(value.toPrecision(2))}s`;
  if (value < 3600) return `${Math.floor(value / 60)}m${String(Math.floor(value % 60)).padStart(2, "0")}s`;
  return `${Math.floor(value / 3600)}h${String(Math.floor((value % 3600) / 60)).padStart(2, "0")}m`;
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

// Evaluations by name, sorted by name; the rows of each by version.
function byEvalName(evals) {
  const names = new Map();
  for (const row of evals) {
    if (!names.has(row.eval_name)) names.set(row.eval_name, []);
    names.get(row.eval_name).push(row);
  }
  return [...names].sort(([a], [b]) => (a < b ? -1 : 1));
}

// "pass@1 0.25, pass@4 0.5" of an evaluation; "" if it has none.
function passText(row) {
  return Object.entries(row.eval_pass_at || {}).map(([k, pass]) => `pass@${k} ${figure(pass)}`).join(", ");
}

// "256", "255 of 256 × 4": the rows of an evaluation that have a score, and the samples of each.
function rowsText(row) {
  const samples = row.samples_per_prompt > 1 ? ` × ${row.samples_per_prompt}` : "";
  return `${row.rows - row.eval_failed_rows}${row.eval_failed_rows > 0 ? ` of ${row.rows}` : ""}${samples}`;
}

// A tile for each evaluation set: its first and last accuracy.
function evaluationTiles(evals) {
  return byEvalName(evals).map(([name, rows]) => {
    const [first, last] = [rows[0], rows.at(-1)];
    const pass = passText(last);
    return tile(`evaluation ${name}`, `${figure(first.eval_accuracy)} → ${figure(last.eval_accuracy)}`,
      `version ${first.policy_version} to ${last.policy_version}, ${last.rows} rows${pass ? `; ${pass}` : ""}`);
  });
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

// Centered moving average over about a twelfth of the points; the window shrinks at the ends.
function smoothed(all) {
  return all.map(([x], i) => {
    const half = Math.min(Math.floor(all.length / 24), i, all.length - 1 - i);
    const run = all.slice(i - half, i + half + 1).filter(([, y]) => y !== null);
    return [x, run.length ? run.reduce((sum, [, y]) => sum + y, 0) / run.length : null];
  });
}

// Each curve's points on top of those of the curves before it. The curves share their x values; null
// counts as 0.
function stacked(curves) {
  const sums = [];
  return curves.map((curve) => curve.points.map(([x, y], i) => [x, sums[i] = (sums[i] || 0) + Math.max(0, y)]));
}

// ------------------------------------------------------------------------------------------ charts

const WIDTH = 560;
const HEIGHT = 210;
const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 30;

// Round numbers from low to high, about `most` of them, as [number, text]; a text has as many digits as
// tell it from its neighbours.
function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough * 0.999) || 10);
  const first = Math.ceil(low / step - 1e-9);
  const found = [];
  for (let i = 0; i <= most && (first + i) * step <= high + step * 1e-9; ++i) {
    const at = (first + i) * step;
    const digits = 1 + Math.ceil(Math.log10(Math.abs(at) / step));
    found.push([at, figure(at, Math.min(15, Math.max(3, digits)))]);
  }
  return found;
}

// spec: {key, title, text, x, from, curves: [{name, color, points, smooth, limit, dots, bars}],
// bands: [{color, low, high}], stack}. `stack`: areas on top of each other instead of curves.
function chart(spec) {
  const head = make("figcaption", {}, make("h3", {}, spec.title), make("p", {}, spec.text));
  const bands = spec.bands || [];
  const tops = spec.stack ? stacked(spec.curves) : spec.curves.map((curve) => curve.points);
  const ys = [...tops, ...bands.flatMap((band) => [band.low, band.high])].flat().map(([, y]) => y).filter(isNumber);
  const xs = tops.flat().map(([x]) => x);
  if (ys.length === 0 || xs.length === 0) {
    return make("figure", { "data-chart": spec.key }, head, make("p", { class: "soft" }, "nothing yet"));
  }
  const beside = spec.curves[0].bars ? 0.5 : 0;
  let low = Math.min(...ys, spec.from ?? Infinity);
  let high = Math.max(...ys);
  const pad = low === high ? Math.abs(low) * 0.1 || 0.5 : (high - low) * (beside ? 0.12 : 0.06);
  if (low !== spec.from) low -= pad;
  high += pad;
  const xLow = Math.min(...xs) - beside;
  const xHigh = Math.max(Math.max(...xs) + beside, xLow + Math.max(1, Math.abs(xLow) * 1e-9));
  const px = (x) => LEFT + ((x - xLow) / (xHigh - xLow)) * (WIDTH - LEFT - RIGHT);
  const py = (y) => TOP + ((high - y) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const place = ([x, y]) => `${px(x).toFixed(1)} ${py(y).toFixed(1)}`;
  const known = (all) => all.filter(([, y]) => y !== null);
  const line = (style, all) => draw("path", { class: style, d: all.map((point, i) =>
    (point[1] === null ? "" : `${i > 0 && all[i - 1][1] !== null ? "L" : "M"}${place(point)}`)).join("") });
  const area = (style, upper, lower) =>
    draw("path", { class: style, d: `M${[...known(upper), ...known(lower).reverse()].map(place).join("L")}Z` });

  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${spec.title}: ${spec.text}` });
  for (const [at, text] of ticks(low, high, 4)) {
    svg.append(draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: py(at), y2: py(at) }),
      draw("text", { x: LEFT - 7, y: py(at) + 4, "text-anchor": "end" }, text));
  }
  svg.append(draw("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
  for (const [at, text] of ticks(xLow, xHigh, 6).filter(([value]) => Number.isInteger(value))) {
    svg.append(draw("text", { x: px(at), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, text));
  }
  for (const band of bands.filter(({ high: upper }) => known(upper).length > 0)) {
    svg.append(area(`band f${band.color}`, band.high, band.low));
  }
  spec.curves.forEach((curve, i) => {
    if (spec.stack) {
      svg.append(area(`area f${curve.color}`, tops[i], tops[i - 1] || tops[i].map(([x]) => [x, 0])));
      return;
    }
    if (curve.bars) {
      for (const [x, y] of curve.points) {
        svg.append(draw("rect", { class: `f${curve.color}`, x: px(x - 0.35), y: py(y), width: px(x + 0.35) - px(x - 0.35), height: py(0) - py(y) }),
          draw("text", { x: px(x), y: py(y) - 4, "text-anchor": "middle" }, figure(y)));
      }
      return;
    }
    const smooth = curve.smooth && curve.points.length >= 24;
    if (smooth) svg.append(line(`faint s${curve.color}`, curve.points));
    svg.append(line(`series s${curve.color}${curve.limit ? " limit" : ""}`, smooth ? smoothed(curve.points) : curve.points));
    if (curve.dots || curve.points.length === 1) {
      svg.append(...known(curve.points).map(([x, y]) => draw("circle", { class: `f${curve.color}`, cx: px(x), cy: py(y), r: 3.5 })));
    }
  });
  const legend = make("ul", { class: "legend" }, ...spec.curves.filter((curve) => !curve.bars).map((curve) => {
    const last = known(curve.points).at(-1);
    return make("li", {}, make("span", { class: `swatch b${curve.color}` }), `${curve.name} ${last ? figure(last[1]) : ""}`);
  }));
  const node = make("figure", { "data-chart": spec.key }, head, legend, svg);
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

// Share in % of all trained tokens by their age, with every age up to the bound.
function tokensByAge(steps, bound) {
  const tokens = new Map();
  for (let age = 0; age <= Math.min(bound ?? 0, 32); ++age) tokens.set(age, 0);
  for (const [age, trained] of steps.flatMap((row) => Object.entries(row.staleness_tokens))) {
    tokens.set(Number(age), (tokens.get(Number(age)) || 0) + trained);
  }
  const total = [...tokens.values()].reduce((sum, trained) => sum + trained, 0);
  return total > 0 ? [...tokens].sort(([a], [b]) => a - b).map(([age, trained]) => [age, 100 * trained / total]) : [];
}

// Specs of the charts of a job's surviving history.
function chartsOf({ steps, evals }, job) {
  const curve = (name, color, value, more = { smooth: true }) => ({ name, color, points: points(steps, (row) => row.step, value), ...more });
  const plain = (...parts) => curve(...parts, {});
  const perSecond = (value) => (row) => (row.step_seconds > 0 ? value(row) / row.step_seconds : null);
  const deviation = (sign) => points(steps, (row) => row.step, (row) => num(row.reward_mean) + sign * num(row.reward_std));
  const components = [...new Set(steps.flatMap((row) => Object.keys(row.reward_components)))].sort();
  // Of each set the accuracy, and pass@k as its own curve.
  const evaluations = byEvalName(evals).flatMap(([name, rows]) => [[name, rows, (row) => row.eval_accuracy],
    ...Object.keys(rows.at(-1).eval_pass_at || {}).map((k) => [`${name} pass@${k}`, rows, (row) => (row.eval_pass_at || {})[k]])]);
  // A single component of weight 1 is the reward.
  const isReward = components.length === 1 && steps.every((row) => Math.abs(row.reward_components[components[0]] - row.reward_mean) <= 1e-9);
  const bound = job.staleness_max ?? null;
  return [
    { key: "reward", title: "Reward", text: "mean of each step's samples, with one deviation; components without their weight",
      curves: [curve("mean", 0, (row) => row.reward_mean),
        ...(isReward ? [] : components).map((name, i) => curve(name, Math.min(1 + i, COLORS - 1), (row) => row.reward_components[name]))],
      bands: [{ color: 0, low: deviation(-1), high: deviation(1) }] },
    { key: "evaluation", title: "Evaluation", text: "accuracy on held-out rows, by policy version", x: "version",
      curves: evaluations.map(([name, rows, value], i) => ({ name, color: i % COLORS, dots: true,
        points: points(rows, (row) => row.policy_version, value) })) },
    { key: "staleness", title: "Staleness", text: "age of the trained tokens, in policy versions", from: 0,
      curves: [plain("mean", 0, (row) => row.staleness_mean), plain("oldest", 1, (row) => row.staleness_max),
        ...(bound === null ? [] : [curve("bound", 3, () => bound, { limit: true })])] },
    { key: "ages", title: "Staleness of all trained tokens", text: "% of tokens by age in policy versions", x: "age", from: 0,
      curves: [{ name: "% of tokens", color: 0, bars: true, points: tokensByAge(steps, bound) }] },
    { key: "throughput", title: "Throughput", text: "tokens per second", from: 0,
      curves: [curve("generated", 0, perSecond((row) => row.tokens_generated)), curve("trained", 1, perSecond((row) => row.tokens_trained))] },
    { key: "time", title: "Where the trainer's time went", text: "seconds of each step", from: 0, stack: true,
      curves: [plain("train", 0, (row) => row.train_seconds), plain("wait for samples", 1, (row) => row.trainer_wait_seconds),
        plain("weight swap", 2, (row) => row.weight_swap_seconds), plain("checkpoint", 3, (row) => row.checkpoint_seconds),
        plain("other", 6, (row) => Math.max(0, num(row.step_seconds) - row.train_seconds - row.trainer_wait_seconds -
          row.weight_swap_seconds - row.checkpoint_seconds))] },
    { key: "waiting", title: "Waiting", text: "share of each step: the trainer for samples, engines for work", from: 0,
      curves: [curve("trainer waits", 0, perSecond((row) => row.trainer_wait_seconds)),
        curve("engines idle", 1, perSecond((row) => row.rollout_idle_seconds)),
        curve("weights swap", 2, perSecond((row) => row.weight_swap_seconds))] },
    { key: "length", title: "Completion length", text: "tokens", from: 0,
      curves: [curve("mean", 0, (row) => row.completion_length_mean), curve("95th percentile", 1, (row) => row.completion_length_p95),
        plain("longest", 6, (row) => row.completion_length_max)] },
    { key: "entropy", title: "Entropy", text: "of the policy, in nats per token", from: 0,
      curves: [curve("entropy", 2, (row) => row.entropy)] },
    { key: "kl", title: "KL divergence", text: "of the policy in training, in nats per token", from: 0,
      curves: [curve("to the policy that sampled", 0, (row) => row.kl_behavior),
        ...(steps.some((row) => row.kl_ref !== undefined) ? [curve("to the reference", 3, (row) => row.kl_ref)] : [])] },
    { key: "gradient", title: "Gradient norm", text: "before clipping", from: 0, curves: [curve("norm", 3, (row) => row.grad_norm)] },
    { key: "clip", title: "Clipped tokens", text: "share of tokens whose probability ratio was clipped", from: 0,
      curves: [curve("clipped", 1, (row) => row.ratio_clip_fraction)] },
    { key: "loss", title: "Loss", text: "the surrogate: its gradient matters, not its value", curves: [curve("loss", 0, (row) => row.loss)] },
  ];
}
