// Serves the status page's own files and an API with made-up jobs, as status_json.h describes it. The test
// changes `fixture` to have things happen.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
export const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const FILES = {
  "/": ["controller/status_page/status.html", "text/html; charset=utf-8"],
  "/status.js": ["controller/status_page/status.js", "text/javascript; charset=utf-8"],
  "/page.js": ["runlog/page/page.js", "text/javascript; charset=utf-8"],
  "/page.css": ["runlog/page/page.css", "text/css; charset=utf-8"],
};
const BEGIN = Date.parse("2026-01-05T09:00:00Z");
const time = (seconds) => new Date(BEGIN + seconds * 1000).toISOString();

// A wave that looks like noise and is always the same.
const wobble = (n) => Math.sin(n * 12.9898) * 0.5 + Math.sin(n * 4.1414) * 0.5;

export function stepRow(step, lineage = 0) {
  const learned = 0.33 + 0.6 * (1 - Math.exp(-step / 60));
  return {
    step, policy_version: step, lineage,
    reward_mean: learned + 0.02 * wobble(step), reward_std: 0.45 - 0.25 * (step / 320),
    reward_components: { exact: learned }, loss: 0.01 * wobble(step), grad_norm: 0.5, entropy: 0.9 * Math.exp(-step / 120) + 0.08,
    kl_behavior: 0.002 + 0.001 * Math.abs(wobble(step + 7)), ratio_clip_fraction: 0.01, staleness_mean: 1.2,
    staleness_p50: step < 3 ? step - 1 : 1 + (step % 3 === 0 ? 1 : 0), staleness_max: Math.min(2, step - 1),
    staleness_tokens: { 0: 10, 1: 800, 2: 900 }, completion_length_mean: 3.9 + 0.05 * wobble(step + 3), completion_length_p95: 4,
    completion_length_max: 5, checkpoint_seconds: step % 20 === 0 ? 0.05 : 0,
    tokens_generated: 2040, tokens_trained: 2020, groups_dropped: 0, groups_filtered: 0,
    trainer_wait_seconds: 0.02 + 0.02 * Math.abs(wobble(step)), rollout_idle_seconds: 0.08, weight_swap_seconds: 0.004,
    train_seconds: 0.14, step_seconds: 0.19 + 0.01 * wobble(step + 1), wall_seconds: 31 + step * 0.19,
  };
}

export function evalRow(version, lineage = 0) {
  return { eval_name: "heldout", eval_accuracy: 0.535 + 0.43 * (1 - Math.exp(-version / 70)), policy_version: version, lineage,
    rows: 512, eval_failed_rows: 0, wall_seconds: 31 + version * 0.19 };
}

function job(id, name, stateName, step, more = {}) {
  return {
    id, name, state: stateName, reason: "the trainer is at work", priority: 0, created: time(0), started: time(1), finished: null,
    step, steps: 320, lineage: 0, reward_mean: step > 0 ? stepRow(step).reward_mean : 0, eval_accuracy: step > 0 ? 0.883 : null,
    waits_for: "trainer: step 125 is claimed by epoch 1 since 279ms and not committed", staleness_max: 2, staleness_policy: "wait",
    group_size: 8, prompts_per_step: 64,
    groups: { queued: 1024, leased: 40, generated: 12, scored: 3, ready: 128, claimed: 64, requeued: 2, trained: 7936 },
    ended: { "filtered(zero_variance)": 4 }, dead_groups: [],
    events: [
      { time: time(0), kind: "state", severity: "info", text: "PENDING: submitted; waits for its turn" },
      { time: time(1), kind: "state", severity: "info", text: "STARTING" },
      { time: time(31), kind: "state", severity: "info", text: "RUNNING: the trainer is at work" },
      { time: time(44), kind: "worker_lost", severity: "warning", text: "rollout rollout-2 was silent for 2s; its leases have returned" },
    ],
    yaml: `name: ${name}\nseed: 1\nstaleness: {max: 2, policy: wait}\n`, ...more,
  };
}

export const HOSTILE = "<img src=x onerror=\"window.hacked = true\"><script>window.hacked = true</script><!-- \u2028\u202e'";

export function makeFixture() {
  const rows = [];
  for (let version = 0; version <= 120; version += 40) rows.push(evalRow(version));
  for (let step = 1; step <= 124; ++step) rows.push(stepRow(step));
  const running = job("arithmetic-9bb9d9d0", "arithmetic", "RUNNING", 124);
  const done = job("smoke-11aa22bb", "smoke", "SUCCEEDED", 320, { waits_for: "", groups: {}, finished: time(90), reason: "all steps are done" });
  const failed = job("broken-0", "broken", "FAILED", 0, { waits_for: "", groups: {}, reason: "the last 16 prompt groups died and none could be scored" });
  const worker = (name, role, more = {}) => ({
    name, role, pool: role === "rollout" ? "default" : "", state: "ready", jobs: [running.id], busy_ratio: 0.62, tokens_per_second: 0,
    kv_cache_used_ratio: 0, lineage: 0, version: 0, waits_for: "", last_seen: time(119), restarts: 0, program_version: "0.1.0", ...more });
  return {
    server: { role: "controller", version: "0.1.0", leads: true, leader: "127.0.0.1:7070", now: time(120) },
    jobs: [running, done, failed],
    rows: { [running.id]: rows, [done.id]: [stepRow(1), evalRow(1)], [failed.id]: [] },
    samples: {
      [running.id]: [
        { step: 124, policy_version: 124, lineage: 0, uid: "a/1/0/0", prompt: "12+34=", completion: "046", reward: 1, components: { exact: 1 },
          advantage: 0.61, tokens: 4, spans: [{ lineage: 0, version: 122, begin: 0, end: 2 }, { lineage: 0, version: 123, begin: 2, end: 4 }], finish: "stop", truncated: false },
        { step: 124, policy_version: 124, lineage: 0, uid: "a/1/0/1", prompt: "12+34=", completion: HOSTILE, reward: 0, components: { exact: 0 },
          advantage: -1.64, tokens: 4, spans: [{ lineage: 0, version: 122, begin: 0, end: 4 }], finish: "length", truncated: true },
      ],
    },
    workers: {
      leader: "127.0.0.1:7070",
      pools: [
        { name: "env", ready: 1, total: 1, wanted: 1, busy_ratio: 0, tokens_per_second: 0, kv_cache_used_ratio: 0, newest_version: 0, oldest_version: 0, restarts: 0 },
        { name: "reward", ready: 1, total: 1, wanted: 1, busy_ratio: 0.04, tokens_per_second: 0, kv_cache_used_ratio: 0, newest_version: 0, oldest_version: 0, restarts: 0 },
        { name: "rollout", ready: 1, total: 2, wanted: 2, wanted_reason: "the trainer waits 31% of its time", busy_ratio: 0.62, tokens_per_second: 11800, kv_cache_used_ratio: 0.41, newest_version: 124, oldest_version: 123, restarts: 1 },
        { name: "trainer", ready: 1, total: 1, wanted: null, busy_ratio: 0.93, tokens_per_second: 10700, kv_cache_used_ratio: 0, newest_version: 124, oldest_version: 124, restarts: 0 },
      ],
      workers: [
        worker("env-1", "env", { jobs: [], busy_ratio: 0 }),
        worker("reward-1", "reward", { busy_ratio: 0.04, waits_for: "rows to score" }),
        worker("rollout-1", "rollout", { tokens_per_second: 11800, kv_cache_used_ratio: 0.41, version: 123 }),
        worker("rollout-2", "rollout", { state: "lost", busy_ratio: 0, waits_for: "silent for 2s", restarts: 1, last_seen: time(44) }),
        worker("trainer-1", "trainer", { busy_ratio: 0.93, tokens_per_second: 10700, version: 124 }),
      ],
      wanted: { env: 1, reward: 1, rollout: 2 },
    },
    moreJobs: false,    // there are older ones
    workersDown: false, // nobody leads
    down: false,        // the datastore is away
    asked: [],          // paths of requests
  };
}

const fault = (status, code, message) => [status, { error: { code, message } }];

function answer(fixture, path, query) {
  if (fixture.down) return fault(503, "UNAVAILABLE", "redis 127.0.0.1:6379: Connection refused");
  if (path === "/api/jobs") {
    const summary = ({ id, name, state, reason, priority, created, started, finished, step, steps, lineage, reward_mean, eval_accuracy }) =>
      ({ id, name, state, reason, priority, created, started, finished, step, steps, lineage, reward_mean, eval_accuracy });
    return [200, { server: fixture.server, jobs: fixture.jobs.map(summary), more: fixture.moreJobs }];
  }
  if (path === "/api/workers") {
    return fixture.workersDown ? fault(503, "UNAVAILABLE", "no controller leads; try again") : [200, fixture.workers];
  }
  const [, , , id, part] = path.split("/").map(decodeURIComponent);
  const found = fixture.jobs.find((one) => one.id === id);
  if (!path.startsWith("/api/jobs/") || !found) return fault(404, "NOT_FOUND", `there is no job ${id}`);
  if (part === undefined) return [200, { job: found }];
  if (part === "samples") return [200, { samples: fixture.samples[id] || [] }];
  if (part !== "metrics") return fault(404, "NOT_FOUND", "a job has /metrics and /samples");
  const given = query.get("after") ?? "0";
  if (!/^\d+$/.test(given)) return fault(400, "INVALID_ARGUMENT", `after: "${given}" is no number from 0 to ${Number.MAX_SAFE_INTEGER}`);
  const after = Number(given);
  const rows = fixture.rows[id] || [];
  if (after > rows.length) return fault(400, "OUT_OF_RANGE", `cursor ${after} is above the newest one`);
  const page = rows.slice(after, after + 50);
  return [200, { rows: page, cursor: after + page.length, gap: false, more: after + page.length < rows.length }];
}

// Listens on a free loopback port; returns {url, close}.
export async function serve(fixture) {
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, "http://127.0.0.1");
    fixture.asked.push(url.pathname + url.search);
    response.setHeader("Content-Security-Policy", POLICY);
    response.setHeader("X-Content-Type-Options", "nosniff");
    if (!/^(localhost|127\.0\.0\.1)(:\d+)?$/.test(request.headers.host ?? "localhost")) {
      response.writeHead(403, { "Content-Type": "application/json; charset=utf-8" });
      response.end(JSON.stringify(fault(403, "PERMISSION_DENIED", "the status page is for this machine")[1]));
      return;
    }
    const file = FILES[url.pathname];
    if (file) {
      response.setHeader("Content-Type", file[1]);
      response.end(await readFile(join(ROOT, file[0])));
      return;
    }
    const [status, body] = answer(fixture, url.pathname, url.searchParams);
    response.writeHead(status, { "Content-Type": "application/json; charset=utf-8" });
    response.end(JSON.stringify(body));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}
