// The status page: asks /api every two seconds and shows what it says. Drawing is in page.js.
"use strict";

const PERIOD_MS = 2000;
const SAMPLES_PERIOD_MS = 6000;
const TIMEOUT_MS = 10000;

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

// ----------------------------------------------------------------------------------- times and marks

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

// -------------------------------------------------------------------------------- who waits for whom

// Which box of the picture an edge of `waits_for` belongs to.
const BOX_OF_EDGE = {
  prompts: "prompts", rollout: "rollout", env: "rollout", reward: "reward", staleness: "ready",
  store: "ready", datastore: "ready", trainer: "trainer", evaluation: "rollout",
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

function showTiles(job, history) {
  const last = history.steps.at(-1);
  const progress = make("progress", { max: Math.max(1, job.steps), value: Math.min(job.step, job.steps) });
  const tiles = [
    tile("state", stateMark(job.state), job.reason.length < 60 ? job.reason : ""),
    tile("step", `${count(job.step)} of ${count(job.steps)}`, job.lineage > 0 ? `lineage ${job.lineage}` : "", progress),
    tile("reward", job.step > 0 ? figure(job.reward_mean) : "–", last ? `± ${figure(last.reward_std)}` : ""),
    ...(history.evals.length > 0 ? evaluationTiles(history.evals) : [tile("evaluation", figure(job.eval_accuracy), "")]),
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
  fillSamples(byId("samples"), state.samples);
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
