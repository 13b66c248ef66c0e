// A run's report.html: shows the JSON in the element `run`. Drawing is in page.js.

function stepTiles(steps, job) {
  if (steps.length === 0) return [];
  const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);
  const reward = (rows) => figure(rows.reduce((total, row) => total + num(row.reward_mean), 0) / rows.length);
  const rate = (key) => count(sum(steps, key) / sum(steps, "step_seconds"));
  const last = steps.at(-1);
  const lineages = new Set(steps.map((row) => row.lineage)).size;
  return [
    tile("reward", `${reward(steps.slice(0, 5))} → ${reward(steps.slice(-5))}`, "mean of the first and last 5 steps"),
    tile("steps", `${count(last.step)}${job.steps ? ` of ${count(job.steps)}` : ""}`, `${seconds(last.wall_seconds)} of wall time`),
    tile("staleness", `at most ${steps.reduce((most, row) => Math.max(most, row.staleness_max), 0)}`,
      isNumber(job.staleness_max) ? `bound ${job.staleness_max}, policy ${job.staleness_policy}` : ""),
    tile("trained", `${count(sum(steps, "tokens_trained"))} tokens`, `${rate("tokens_trained")} per second; ${rate("tokens_generated")} generated`),
    tile("groups lost", count(sum(steps, "groups_dropped")), `dropped; ${count(sum(steps, "groups_filtered"))} filtered`),
    ...(lineages > 1 ? [tile("lineages", String(lineages), "the run was resumed")] : []),
  ];
}

function showReport({ job, rows, samples }) {
  const history = surviving(rows);
  const name = job.name || "run";
  document.title = `${name} - Freshet`;
  setText(byId("name"), name);
  setText(byId("subtitle"), `Freshet run report${job.prompts_per_step && job.group_size
    ? `: ${job.prompts_per_step} prompts of ${job.group_size} samples a step` : ""}`);
  show(byId("tiles"), ...evaluationTiles(history.evals), ...stepTiles(history.steps, job));
  byId("charts").replaceChildren(...chartsOf(history, job).map(chart));
  fillTable(byId("evaluations"), [
    { title: "Name", cell: (row) => row.eval_name },
    { title: "Version", number: true, cell: (row) => String(row.policy_version) },
    { title: "Accuracy", number: true, cell: (row) => figure(row.eval_accuracy) },
    { title: "Rows", number: true, cell: rowsText },
    ...(history.evals.some(passText) ? [{ title: "Pass@k", cell: passText }] : []),
    { title: "At", number: true, cell: (row) => seconds(row.wall_seconds) },
  ], history.evals, "none yet");
  fillSamples(byId("samples"), samples);
  setText(byId("yaml"), job.yaml);
  document.body.dataset.ready = "true";
}

showReport(JSON.parse(byId("run").textContent));
