// The status page and report.html in a real browser.
//
//   node status_page_test.mjs [--screenshots DIR] [--url URL --job ID]
//
// Without --url: every behaviour of the page, against made-up jobs (fixture_server.mjs), and of the report that
// build/bin/freshet writes into made-up run folders. With --url: the page that a controller or `freshet local` serves at
// URL shows the job ID with its curves and samples, as the binary has it built in. Needs playwright-core (NODE_PATH or node_modules) and a Chromium: CHROMIUM names it, else /usr/bin/chromium.
// The last line is `N passed, N failed`.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";
import { HOSTILE, ROOT, evalRow, makeFixture, serve, stepRow } from "./fixture_server.mjs";

const flags = new Map();
for (let i = 2; i < process.argv.length; i += 2) flags.set(process.argv[i], process.argv[i + 1]);
for (const flag of flags.keys()) {
  if (!["--screenshots", "--url", "--job"].includes(flag)) {
    console.error(`no such flag: ${flag}`);
    process.exit(2);
  }
}

function loadPlaywright() {
  try {
    return createRequire(import.meta.url)("playwright-core");
  } catch {
    console.error("playwright-core is not installed; ./dev status-page installs it and runs this");
    process.exit(2);
  }
}

const { chromium } = loadPlaywright();
const shots = flags.get("--screenshots");
if (shots) mkdirSync(shots, { recursive: true });

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});

let passed = 0;
let failed = 0;

// A page of its own; nothing may go wrong in its console, and nothing may be asked from elsewhere.
async function withPage(url, work, { colorScheme = "light", faultsExpected = false } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme, timezoneId: "UTC" });
  const page = await context.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A browser also logs answers other than 200 and what the policy refuses, which some tests provoke.
    if (message.type() === "error" && !(faultsExpected && /Failed to load resource|Content Security Policy/.test(message.text()))) {
      problems.push(`console: ${message.text()}`);
    }
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) problems.push(`asked ${request.url()}`);
  });
  try {
    await page.goto(url);
    await page.waitForSelector("body[data-ready=true]");
    await work(page);
    assert.deepEqual(problems, []);
  } finally {
    await context.close();
  }
}

async function test(name, work) {
  try {
    await work();
    passed += 1;
    console.log(`ok     ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error.message}`);
  }
}

async function withFixture(work, options = {}) {
  const fixture = makeFixture();
  const server = await serve(fixture);
  try {
    await withPage(server.url, (page) => work(page, fixture, server.url), options);
  } finally {
    server.close();
  }
}

const text = (page, selector) => page.locator(selector).innerText();
const cells = async (page, table) => (await page.locator(`${table} tbody tr`).allInnerTexts()).map((row) => row.split("\t").map((cell) => cell.trim()));
const curveLength = (page, key, n) => page.locator(`[data-chart=${key}] path.series`).nth(n).evaluate((path) => path.getTotalLength());
const refresh = (page) => page.evaluate(() => window.dispatchEvent(new HashChangeEvent("hashchange")));

async function fixtureTests() {
  await test("shows the job at work first, and all jobs", () => withFixture(async (page) => {
    assert.equal(await text(page, "#job-title"), "arithmetic-9bb9d9d0");
    const rows = await cells(page, "#jobs");
    assert.deepEqual(rows.map((row) => row[1]), ["RUNNING", "SUCCEEDED", "FAILED"]);
    assert.equal(rows[0][2], "124/320");
    assert.match(await text(page, "#server"), /^controller 0\.1\.0 · leads/);
  }));

  await test("says that there are older jobs", () => withFixture(async (page, fixture) => {
    assert.equal(await page.locator("#jobs-more").isVisible(), false);
    fixture.moreJobs = true;
    await refresh(page);
    await page.waitForSelector("#jobs-more:not([hidden])");
    assert.equal(await text(page, "#jobs-more"), "older ones: freshet list");
  }));

  await test("draws reward and staleness with their bound from all pages of the metrics", () => withFixture(async (page, fixture) => {
    for (const key of ["reward", "evaluation", "staleness", "throughput", "waiting", "length", "entropy", "kl"]) {
      assert.ok(await curveLength(page, key, 0) > 100, key);
    }
    assert.equal(await page.locator("[data-chart=evaluation] circle").count(), 4);
    assert.equal(await page.locator("[data-chart=staleness] path.limit").count(), 1);
    assert.match(await text(page, "[data-chart=staleness] .legend"), /bound 2/);
    assert.ok(fixture.asked.includes("/api/jobs/arithmetic-9bb9d9d0/metrics?after=100&limit=1000"));
    if (shots) await page.screenshot({ path: join(shots, "status-page.png"), fullPage: true });
  }));

  await test("says who waits for whom", () => withFixture(async (page) => {
    assert.match(await text(page, "#waits"), /^waits for trainer: step 125 is claimed/);
    assert.equal(await page.locator(".node.blocks").getAttribute("data-box"), "trainer");
    assert.match(await page.locator("[data-box=rollout]").textContent(), /40 being generated1\/2 ready/);
    assert.match(await page.locator("#flow").textContent(), /new weights: version 124, engines up to 1 behind/);
  }));

  await test("shows pools, workers and what each waits for", () => withFixture(async (page) => {
    const pools = await cells(page, "#pools");
    assert.deepEqual(pools.map((row) => row.slice(0, 2)), [["env", "1/1"], ["reward", "1/1"], ["rollout", "1/2"], ["trainer", "1/1"]]);
    assert.equal(pools[2][6], "1");
    assert.deepEqual(pools.map((row) => row[8]), ["", "", "the trainer waits 31% of its time", ""]);
    const workers = await cells(page, "#workers");
    assert.equal(workers.length, 5);
    assert.equal(workers[3][1], "lost");
    assert.equal(workers[3].at(-1), "silent for 2s");
    assert.equal(workers[1].at(-1), "rows to score");
  }));

  await test("shows samples with rewards as text, whatever they contain", () => withFixture(async (page) => {
    const rows = await cells(page, "#samples");
    assert.deepEqual(rows[0].slice(0, 4), ["124", "12+34=", "046", "1"]);
    assert.equal(rows[0][7], "122, 123");
    assert.equal(await page.locator("#samples tbody tr").nth(1).locator("td").nth(2).textContent(), `${HOSTILE} …`);
    assert.equal(await page.locator("#samples img, #samples script").count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  }));

  await test("follows the job as it goes, asking for new rows only", () => withFixture(async (page, fixture) => {
    const id = fixture.jobs[0].id;
    const before = await curveLength(page, "reward", 0);
    fixture.asked.length = 0;
    for (let step = 125; step <= 200; ++step) fixture.rows[id].push(stepRow(step));
    fixture.jobs[0].step = 200;
    await page.waitForFunction(() => document.querySelector("#tiles").innerText.includes("200 of 320"), null, { timeout: 8000 });
    assert.notEqual(await curveLength(page, "reward", 0), before);
    assert.ok(fixture.asked.includes(`/api/jobs/${id}/metrics?after=128&limit=1000`));
    assert.ok(!fixture.asked.includes(`/api/jobs/${id}/metrics?after=0&limit=1000`));
  }));

  await test("lets the surviving history count after a fork", () => withFixture(async (page, fixture) => {
    const id = fixture.jobs[1].id;
    fixture.rows[id] = [evalRow(0), ...[1, 2, 3, 4].map((step) => ({ ...stepRow(step), reward_mean: 0.1 })),
      ...[3, 4, 5].map((step) => ({ ...stepRow(step, 1), reward_mean: 0.9 }))];
    await page.goto(`${page.url().split("#")[0]}#job=${id}`);
    await page.waitForFunction((wanted) => document.querySelector("#job-title").textContent === wanted, id);
    await page.waitForSelector("[data-chart=reward] path.series", { state: "attached" });
    const points = await page.locator("[data-chart=reward] path.series").first().evaluate((path) => path.getAttribute("d").split(/[ML]/).length - 1);
    assert.equal(points, 5);
    assert.match(await text(page, "[data-chart=reward] .legend"), /mean 0\.9/);
  }));

  await test("keeps an evaluation of the version from which a later lineage goes on", () => withFixture(async (page, fixture) => {
    const id = fixture.jobs[1].id;
    // Lineage 1 begins with step 3: version 2 counts still, version 3 is another one now.
    fixture.rows[id] = [...[1, 2, 3, 4].map((step) => stepRow(step)), ...[0, 1, 2, 3].map((version) => evalRow(version)),
      ...[3, 4].map((step) => stepRow(step, 1))];
    await page.goto(`${page.url().split("#")[0]}#job=${id}`);
    await page.waitForFunction((wanted) => document.querySelector("#job-title").textContent === wanted, id);
    await page.waitForSelector("[data-chart=evaluation] circle", { state: "attached" });
    assert.equal(await page.locator("[data-chart=evaluation] circle").count(), 3);
  }));

  await test("another job by its link; a failed one says why", () => withFixture(async (page) => {
    await page.click("#jobs a >> text=broken-0");
    await page.waitForFunction(() => document.querySelector("#job-title").textContent === "broken-0");
    assert.match(await text(page, "#waits"), /^failed: the last 16 prompt groups died/);
    assert.match(await page.locator("#waits").getAttribute("class"), /error/);
    assert.match(await text(page, "[data-chart=reward]"), /nothing yet/);
    assert.match(await text(page, "#flow-text"), /not at work/);
  }));

  await test("a stall is marked", () => withFixture(async (page, fixture) => {
    fixture.jobs[0].waits_for = "reward: step 125 needs 3 groups: 3 rows unscored, reward pool 0/1 ready";
    fixture.jobs[0].events.push({ time: null, kind: "stalled", severity: "warning", text: "no progress for 8s" });
    await refresh(page);
    await page.waitForSelector("#waits.warning");
    assert.equal(await page.locator(".node.blocks").getAttribute("data-box"), "reward");
    if (shots) await page.screenshot({ path: join(shots, "status-page-stalled.png") });
  }));

  await test("without a leader the rest stays and the reason is shown", () => withFixture(async (page, fixture) => {
    fixture.workersDown = true;
    Object.assign(fixture.server, { leads: false, leader: "10.0.0.2:7070" });
    await refresh(page);
    await page.waitForFunction(() => document.querySelector("#workers-text").textContent !== "");
    assert.equal(await text(page, "#workers-text"), "no controller leads; try again");
    assert.equal((await cells(page, "#workers")).length, 5);
    assert.match(await text(page, "#server"), /stands by; 10\.0\.0\.2:7070 leads/);
    assert.equal(await text(page, "#connection"), "");
  }, { faultsExpected: true }));

  await test("an outage is said and ends by itself", () => withFixture(async (page, fixture) => {
    fixture.down = true;
    await page.waitForSelector("#connection.away", { timeout: 8000 });
    assert.match(await text(page, "#connection"), /no answer: redis .* Connection refused/);
    assert.equal(await text(page, "#job-title"), "arithmetic-9bb9d9d0");
    fixture.down = false;
    await page.waitForSelector("#connection:not(.away)", { state: "attached", timeout: 8000 });
  }, { faultsExpected: true }));

  await test("a job made anew under its name begins again", () => withFixture(async (page, fixture) => {
    const id = fixture.jobs[0].id;
    fixture.rows[id] = [stepRow(1), stepRow(2)];
    fixture.jobs[0].step = 2;
    await page.waitForFunction(() => document.querySelector("#tiles").innerText.includes("2 of 320"), null, { timeout: 8000 });
    await page.waitForFunction(() => (document.querySelector("[data-chart=reward] path.series")?.getAttribute("d") || "").split(/[ML]/).length - 1 === 2, null, { timeout: 8000 });
  }, { faultsExpected: true }));

  await test("a pointer over a curve tells its values", () => withFixture(async (page) => {
    const svg = page.locator("[data-chart=reward] svg");
    await svg.scrollIntoViewIfNeeded();
    const box = await svg.boundingBox();
    await page.mouse.move(box.x + box.width * 0.5, box.y + box.height * 0.5);
    assert.match(await text(page, "[data-chart=reward] .tip"), /^step \d+\nmean 0\.\d+\nexact 0\.\d+$/);
  }));

  await test("ten thousand steps stay quick", () => withFixture(async (page, fixture) => {
    const id = "long-0";
    fixture.rows[id] = Array.from({ length: 10000 }, (_, i) => stepRow(i + 1));
    fixture.jobs.push({ ...fixture.jobs[0], id, step: 10000, steps: 20000 });
    await page.goto(`${page.url().split("#")[0]}#job=${id}`);
    await page.waitForFunction(() => document.querySelector("#tiles").innerText.includes("10k of 20k"), null, { timeout: 30000 });
    const points = await page.locator("[data-chart=reward] path.series").first().evaluate((path) => path.getAttribute("d").split(/[ML]/).length - 1);
    assert.ok(points > 100 && points <= 500, String(points));
  }));

  await test("reads well in the dark, and on a narrow screen", () => withFixture(async (page) => {
    if (shots) await page.screenshot({ path: join(shots, "status-page-dark.png") });
    await page.setViewportSize({ width: 400, height: 800 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 400);
  }, { colorScheme: "dark" }));
}

const JOB_YAML = "name: arithmetic\ngroup_size: 8\nprompts_per_step: 64\nstaleness: {max: 2, policy: wait}\ntrainer: {steps: 140}\n";

// Has freshet write the report of a run with these files, and opens it.
async function withReport({ yaml = JOB_YAML, rows = [], samples = [] }, work, options = {}) {
  const folder = mkdtempSync(join(tmpdir(), "report-"));
  try {
    const lines = (all) => all.map((row) => `${JSON.stringify(row)}\n`).join("");
    writeFileSync(join(folder, "job.yaml"), yaml);
    writeFileSync(join(folder, "metrics.jsonl"), lines(rows));
    writeFileSync(join(folder, "samples.jsonl"), lines(samples));
    execFileSync(process.env.FRESHET || join(ROOT, "build/bin/freshet"), ["report", folder], { stdio: ["ignore", "ignore", "inherit"] });
    await withPage(pathToFileURL(join(folder, "report.html")).href, work, options);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function reportRows() {
  const rows = [];
  for (let step = 0; step <= 140; ++step) {
    if (step > 0) rows.push({ ...stepRow(step), reward_components: { exact: stepRow(step).reward_mean, length: 0.6 }, kl_ref: 0.01 });
    if (step % 20 === 0) rows.push(evalRow(step));
  }
  return rows;
}

const sample = (step, more = {}) => ({ step, policy_version: step, lineage: 0, uid: `a/${step}/0/0`, prompt: "12+34=", completion: "046", reward: 1,
  components: { exact: 1 }, advantage: 0.5, tokens: 4, spans: [{ lineage: 0, version: step - 1, begin: 0, end: 4 }], finish: "stop", ...more });

async function reportTests() {
  for (const colorScheme of ["light", "dark"]) {
    await test(`a report shows curves, evaluations, samples and the job, ${colorScheme}`, () => withReport(
      { rows: reportRows(), samples: Array.from({ length: 20 }, (_, i) => sample(i + 1)) }, async (page) => {
        assert.equal(await page.title(), "arithmetic - Freshet");
        assert.equal(await text(page, "#subtitle"), "Freshet run report: 64 prompts of 8 samples a step");
        const tiles = await text(page, "#tiles");
        for (const part of ["0.535 → 0.907", "version 0 to 140, 512 rows", "140 of 140", "at most 2", "bound 2, policy wait", "283k tokens"]) {
          assert.ok(tiles.includes(part), `${part} in ${tiles}`);
        }
        for (const key of ["reward", "evaluation", "staleness", "throughput", "waiting", "length", "entropy", "kl", "gradient", "clip", "loss"]) {
          assert.ok(await curveLength(page, key, 0) > 100, key);
        }
        assert.match(await text(page, "[data-chart=reward] .legend"), /mean.*exact.*length/s);
        assert.match(await text(page, "[data-chart=kl] .legend"), /to the reference 0\.01/);
        assert.deepEqual((await page.locator("[data-chart=ages] svg text").allTextContents()).slice(-3), ["0.585", "46.8", "52.6"]);
        // The outline of an area: its top, and back along the top of the one below.
        const areas = (await page.locator("[data-chart=time] path.area").evaluateAll((paths) => paths.map((path) => path.getAttribute("d"))))
          .map((d) => d.slice(1, -1).split("L"));
        assert.equal(areas.length, 5);
        assert.deepEqual(areas[1].slice(140).reverse(), areas[0].slice(0, 140));
        const last = (await cells(page, "#evaluations")).at(-1);
        assert.deepEqual(last, ["heldout", "140", "0.907", "512", "58s"]);
        const samples = await cells(page, "#samples");
        assert.deepEqual(samples.map((row) => row[0]), ["1", "2", "3", "4", "5", "13", "14", "15", "16", "17", "18", "19", "20"]);
        assert.deepEqual(samples[12], ["20", "12+34=", "046", "1", "exact 1", "0.5", "4", "19", "stop"]);
        assert.equal(await page.locator("#yaml").textContent(), JOB_YAML);
        if (shots) await page.screenshot({ path: join(shots, `report-${colorScheme}.png`), fullPage: true });
      }, { colorScheme }));
  }

  const sampledRow = (version) => ({ ...evalRow(version), eval_name: "sampled", rows: 64, samples_per_prompt: 4,
    eval_accuracy: 0.25, eval_pass_at: { 1: 0.25, 4: version === 0 ? 0.5 : 0.75 } });
  await test("a report keeps evaluation sets apart", () => withReport({
    yaml: JOB_YAML, rows: [evalRow(0), sampledRow(0), stepRow(1), evalRow(20), sampledRow(20)], samples: [],
  }, async (page) => {
    const tiles = await text(page, "#tiles");
    for (const part of ["evaluation heldout", "evaluation sampled", "version 0 to 20, 64 rows; pass@1 0.25, pass@4 0.75"]) {
      assert.ok(tiles.includes(part), `${part} in ${tiles}`);
    }
    assert.match(await text(page, "[data-chart=evaluation] .legend"), /heldout.*sampled.*sampled pass@1.*sampled pass@4/s);
    assert.equal(await page.locator("[data-chart=evaluation] circle").count(), 8);
    const rows = (await cells(page, "#evaluations")).filter((row) => row[0] === "sampled");
    assert.deepEqual(rows.map((row) => row.slice(0, 5)),
      [["sampled", "0", "0.25", "64 × 4", "pass@1 0.25, pass@4 0.5"], ["sampled", "20", "0.25", "64 × 4", "pass@1 0.25, pass@4 0.75"]]);
  }));

  await test("a report shows hostile texts as texts", () => withReport({
    yaml: Buffer.concat([Buffer.from(`name: ${JSON.stringify(HOSTILE)}\n# `), Buffer.from([0xff]), Buffer.from(HOSTILE)]),
    rows: [{ ...evalRow(0), eval_name: HOSTILE }, { ...stepRow(1), reward_components: { [HOSTILE]: 0, "{run}": 1 } }],
    samples: [sample(1, { prompt: HOSTILE, completion: HOSTILE, components: { [HOSTILE]: 1 }, finish: HOSTILE })],
  }, async (page) => {
    assert.equal(await page.locator("#name").textContent(), HOSTILE);
    assert.ok((await page.locator("#yaml").textContent()).endsWith(`\ufffd${HOSTILE}`));
    assert.equal(await page.locator("#samples td").nth(1).textContent(), HOSTILE);
    assert.equal(await page.locator("#samples td").nth(2).textContent(), HOSTILE);
    assert.ok((await page.locator("[data-chart=reward] .legend").textContent()).includes(HOSTILE));
    assert.equal(await page.locator("img, body > main script").count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  }));

  await test("a report may run no other script and ask nobody", () => withReport({}, async (page) => {
    const refused = await page.evaluate(async () => {
      const found = [];
      document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
      const script = document.createElement("script");
      script.textContent = "window.hacked = true";
      document.body.append(script);
      await fetch("https://example.invalid/").catch(() => {});
      await new Promise((resolve) => setTimeout(resolve));
      return found.sort();
    });
    assert.deepEqual(refused, ["connect-src", "script-src-elem"]);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  }, { faultsExpected: true }));

  await test("a report of a run that just began says so", () => withReport({ yaml: "name: young\n" }, async (page) => {
    assert.equal(await page.locator("figure").count(), 13);
    assert.match(await text(page, "[data-chart=reward]"), /nothing yet/);
    assert.deepEqual(await cells(page, "#samples"), [["none yet"]]);
  }));

  await test("a report survives numbers that are none, huge or equal", () => withReport({
    rows: [1, 2, 3].flatMap((step) => [{ ...evalRow(step), eval_accuracy: null },
      { ...stepRow(step), reward_mean: step === 2 ? null : 1e16, loss: null, entropy: step * 1e16, kl_behavior: step === 1 ? 1e308 : -1e308,
        grad_norm: 1 + step * 1e-15, step_seconds: null, tokens_trained: Number.MAX_SAFE_INTEGER, staleness_tokens: {} }]),
    samples: [sample(1, { reward: null, components: { exact: null } })],
  }, async (page) => {
    assert.match(await text(page, "[data-chart=loss]"), /nothing yet/);
    assert.match(await text(page, "[data-chart=ages]"), /nothing yet/);
    assert.equal((await page.locator("[data-chart=reward] path.series").first().getAttribute("d")).split("M").length - 1, 2); // a gap
    assert.doesNotMatch(await page.locator("#charts").innerHTML(), /NaN|Infinity/);
    assert.equal((await cells(page, "#samples"))[0][3], "–");
  }));
}

async function liveTests(url, job) {
  await test("the page that is built in shows the job", () => withPage(url, async (page) => {
    await page.goto(`${url}#job=${encodeURIComponent(job)}`);
    await page.waitForFunction((wanted) => document.querySelector("#job-title").textContent === wanted, job);
    // A level curve has no height, which counts as not visible.
    await page.waitForSelector("[data-chart=reward] path.series", { state: "attached", timeout: 30000 });
    await page.waitForSelector("[data-chart=staleness] path.limit", { state: "attached" });
    await page.waitForFunction(() => document.querySelectorAll("#samples td.num").length > 0, null, { timeout: 30000 });
    assert.ok((await cells(page, "#workers")).length > 0);
    assert.match(await page.locator("#yaml").textContent(), /staleness:/);
    if (shots) await page.screenshot({ path: join(shots, "status-page-live.png"), fullPage: true });
  }));
  await test("its answers carry the policy, and a foreign host is refused", async () => {
    const answer = await fetch(url);
    assert.match(answer.headers.get("content-security-policy"), /^default-src 'none'/);
    const { request } = await import("node:http");
    const status = await new Promise((resolve, reject) => {
      request(url, { headers: { Host: "evil.example" } }, (response) => resolve(response.statusCode)).on("error", reject).end();
    });
    assert.equal(status, 403);
  });
  await test("faults are JSON with a reason", async () => {
    const missing = await fetch(`${url}api/jobs/no-such-job`);
    assert.equal(missing.status, 404);
    assert.equal((await missing.json()).error.code, "NOT_FOUND");
    const bad = await fetch(`${url}api/jobs/${encodeURIComponent(job)}/metrics?after=x`);
    assert.equal(bad.status, 400);
    assert.match((await bad.json()).error.message, /^after: "x" is no number/);
  });
}

if (flags.has("--url")) {
  await liveTests(flags.get("--url").replace(/\/?$/, "/"), flags.get("--job") || "");
} else {
  await fixtureTests();
  await reportTests();
}
await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
