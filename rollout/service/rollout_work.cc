#include "rollout/service/rollout_work.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/eval_sets.h"
#include "model/bundle_proto.h"
#include "model/parameter_layout.h"
#include "rollout/environment/http/http_agent_client.h"
#include "rollout/openai/tool_format.h"
#include "rollout/service/engine_choice.h"
#include "rollout/worker/agent_runner.h"
#include "rollout/worker/rollout_setup.h"
#include "weights/transfer_time.h"

namespace freshet {
namespace {

using cluster::v1::AssignmentStatus;

constexpr absl::Duration kBackgroundPeriod = absl::Seconds(1);
// Each put is a durable round trip to Redis. Samples of incomplete groups share one, because
// nothing trains on them yet.
constexpr absl::Duration kPutPeriod = absl::Milliseconds(100);
constexpr int64_t kRowsPerCall = 512;

bool IsNative(const job::v1::JobSpec& spec) {
  return !spec.rollout().has_engine() || spec.rollout().engine() == "native";
}

std::vector<WeightMember> Members(
    const google::protobuf::RepeatedPtrField<weights::v1::Member>& members) {
  std::vector<WeightMember> all;
  for (const weights::v1::Member& member : members) {
    all.push_back({member.worker(), member.address(), member.work(), member.site()});
  }
  return all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<runtime::JobWork>> RolloutWork::Create(
    const cluster::v1::Assign& assign, const std::string& worker,
    runtime::ControllerCalls& controller, const RolloutContext& context) {
  std::unique_ptr<RolloutWork> work(new RolloutWork(controller, context));
  work->job_ = assign.job_id();
  work->spec_ = assign.spec();
  const job::v1::JobSpec& spec = work->spec_;
  FRESHET_ASSIGN_OR_RETURN(work->model_, OpenModelBundle(spec, FromProto(assign.model())));
  const ModelSetup& model = work->model_;
  work->tokenizer_ = std::move(work->model_.tokenizer);
  FRESHET_ASSIGN_OR_RETURN(work->engine_, context.make_engine(spec, model.config));
  FRESHET_ASSIGN_OR_RETURN(work->store_, context.open_store(work->job_));
  work->subscriber_ = std::make_shared<WeightSubscriber>();
  if (spec.has_eval()) work->subscriber_->KeepEvery(spec.eval().every_steps());
  work->OpenEndpoint();
  FRESHET_RETURN_IF_ERROR(work->OpenEpisodes());
  RolloutOptions options = MakeRolloutOptions(
      spec, MakeSampling(spec, model.config, *work->tokenizer_), assign.longest_prompt_tokens());
  options.store_retry_delay *= context.time_scale;
  options.max_store_retry_delay *= context.time_scale;
  options.put_period = kPutPeriod * context.time_scale;
  options.count_period *= context.time_scale;
  options.worker = worker;
  options.most_engine_failures = MostEngineFailures(spec);
  options.request_prefix = StrCat(assign.assignment_id(), "/");
  // One call of the engine may write the weights, abort samples and load: twice the load's time.
  if (!IsNative(spec)) options.longest_call = 2 * LoadTimeout(model.config);
  work->worker_ = std::make_unique<RolloutWorker>(*work->store_, *work->engine_, work->subscriber_,
                                                  *context.clock, std::move(options),
                                                  work->episodes_.get(), &work->endpoint_->queue());
  work->Attach();
  context.weights->Serve(work->job_, spec.weight_sync().transport(),
                         IsNative(spec) ? MakeEngineOptions(spec).device : "cpu",
                         work->subscriber_);
  work->stats_id_ =
      context.stats_by_job->Begin(work->job_, [raw = work.get()] { return raw->Stats(); });
  return work;
}

void RolloutWork::OpenEndpoint() {
  openai::RolloutEndpointOptions options;
  if (context_.port != nullptr) options.api = context_.port->api();
  options.api.model_name = spec_.name();
  options.api.model = openai::MakeServedModel(model_.config, engine_->stats());
  options.api.tool_format = openai::ToolFormatOf(*tokenizer_).format;
  // Inference servers refuse some of them.
  if (IsNative(spec_)) {
    options.api.defaults = openai::SamplingDefaults(model_.config.generation_text);
  }
  if (HasAgent(spec_)) {
    options.queue.request_timeout = absl::Milliseconds(spec_.environment().timeout_ms());
  }
  endpoint_ = std::make_unique<openai::RolloutEndpoint>(*engine_, *tokenizer_, *context_.clock,
                                                        std::move(options));
}

absl::Status RolloutWork::OpenEpisodes() {
  if (!spec_.has_environment()) return absl::OkStatus();
  if (HasAgent(spec_)) {
    if (context_.port == nullptr) {
      return InvalidArgument(
          "environment.type openai_agent needs the OpenAI endpoint of the rollout, which "
          "--openai-listen turns off");
    }
    const std::string& address = spec_.environment().address();
    FRESHET_ASSIGN_OR_RETURN(const std::string base_url, context_.port->BaseUrlFor(address));
    FRESHET_ASSIGN_OR_RETURN(agent_, HttpAgentClient::Open(address));
    AgentOptions agent = MakeAgentOptions(spec_, base_url);
    agent.retry_delay *= context_.time_scale;
    agent.max_retry_delay *= context_.time_scale;
    episodes_ = std::make_unique<AgentRunner>(endpoint_->queue(), endpoint_->sessions(), *agent_,
                                              *context_.clock, std::move(agent));
    return absl::OkStatus();
  }
  FRESHET_ASSIGN_OR_RETURN(environments_, context_.open_environments(spec_));
  EpisodeOptions options = MakeEpisodeOptions(spec_);
  options.retry_delay *= context_.time_scale;
  options.max_retry_delay *= context_.time_scale;
  episodes_ =
      std::make_unique<EpisodeRunner>(*engine_, environments_->client(), *context_.clock,
                                      MakeEpisodeText(spec_, *tokenizer_), std::move(options));
  return absl::OkStatus();
}

void RolloutWork::Attach() {
  target_.job = job_;
  target_.queue = &endpoint_->queue();
  target_.tokenizer = tokenizer_;
  target_.eos_ids = model_.config.eos_token_ids;
  target_.pause_engine_until = [this](absl::Time end) { worker_->PauseEngineUntil(end); };
  target_.fill_stats = [this](rollout::v1::GetStatsReply& reply) {
    const std::optional<CommittedWeights> weights = subscriber_->Committed();
    if (weights.has_value()) {
      const PolicyVersion& policy = weights->snapshot.manifest.policy;
      reply.mutable_policy()->set_lineage(policy.lineage);
      reply.mutable_policy()->set_version(policy.version);
    }
    reply.set_paused(worker_->EnginePaused());
    reply.set_sessions(static_cast<int64_t>(endpoint_->sessions().size()));
  };
  context_.calls->Attach(target_);
  if (context_.port != nullptr) context_.port->Attach(*endpoint_);
}

void RolloutWork::Detach() {
  context_.calls->Detach(target_);
  if (context_.port != nullptr && endpoint_ != nullptr) context_.port->Detach(*endpoint_);
}

RolloutWork::~RolloutWork() {
  Detach();
  context_.stats_by_job->End(stats_id_);
  context_.weights->Forget(job_);
}

RolloutStats RolloutWork::Stats() const {
  RolloutStats stats;
  stats.counters = worker_->counters();
  const std::optional<CommittedWeights> weights = subscriber_->Committed();
  if (weights.has_value()) stats.version = weights->snapshot.manifest.policy.version;
  stats.max_unsent_samples = RolloutOptions().max_unsent_samples;
  return stats;
}

absl::Status RolloutWork::Run(std::stop_token stop) {
  std::jthread background([this](std::stop_token ended) { RunBackground(ended); });
  const std::stop_callback wake(stop, [this] { store_->Close(); });
  const absl::Status status = worker_->Run(stop);
  background.request_stop();
  MutexLock lock(mu_);
  wake_.NotifyAll();
  return status;
}

void RolloutWork::RunBackground(std::stop_token stop) {
  PullTimer timer(context_.pull_after, context_.pull_after + PublicationTimeout(),
                  context_.clock->Now());
  const absl::Duration period = std::min(kBackgroundPeriod, context_.pull_after);
  while (!stop.stop_requested()) {
    std::optional<cluster::v1::Evaluate> evaluate;
    {
      MutexLock lock(mu_);
      if (!evaluate_.has_value()) wake_.WaitFor(mu_, period);
      evaluate = std::exchange(evaluate_, std::nullopt);
    }
    if (stop.stop_requested()) return;
    if (evaluate.has_value()) StartEvaluation(*evaluate);
    PullWhenDue(timer, stop);
  }
}

absl::Duration RolloutWork::PublicationTimeout() const {
  const job::v1::WeightSync& sync = spec_.weight_sync();
  if (sync.has_timeout_ms()) return absl::Milliseconds(sync.timeout_ms());
  const int64_t parameters = MakeParameterLayout(model_.config).num_parameters;
  return std::min(TransferTime(parameters * static_cast<int64_t>(sizeof(float))), kMaxTransferTime);
}

// Weights normally arrive by publication. An engine that joins while a trainer is busy between two
// steps, or that missed publications, pulls them.
void RolloutWork::PullWhenDue(PullTimer& timer, const std::stop_token& stop) {
  const std::optional<CommittedWeights> weights = subscriber_->Committed();
  std::optional<PolicyVersion> held;
  if (weights.has_value()) held = weights->snapshot.manifest.policy;
  PolicyVersion published = worker_->counters().committed;
  subscriber_->OnCommitted(published);
  published.version -= published.version % std::max<int64_t>(spec_.weight_sync().every_steps(), 1);
  const PullDecision decision = timer.Look(held, published, context_.clock->Now());
  cluster::v1::Members members;
  {
    MutexLock lock(mu_);
    if (failed_pull_.has_value() && held.has_value() && *held >= failed_pull_->at_least) {
      failed_pull_.reset();
    }
    if (!decision.pull) return;
    members = members_;
  }
  std::optional<WeightMember> trainer;
  if (members.has_trainer()) {
    trainer = WeightMember{members.trainer().worker(), members.trainer().address(),
                           members.trainer().work(), members.trainer().site()};
  }
  const absl::Status pulled =
      context_.weights->Pull(job_, decision.at_least, Members(members.rollouts()), trainer,
                             subscriber_, PublicationTimeout(), stop);
  if (stop.stop_requested()) return;
  {
    MutexLock lock(mu_);
    failed_pull_.reset();
    if (!pulled.ok()) failed_pull_ = FailedPull{decision.at_least, std::string(Message(pulled))};
  }
  if (held.has_value()) {
    FRESHET_LOG(Warning) << "event=weights_behind job=" << job_
                         << " reason=" << LogQuoted(decision.reason)
                         << " pulled=" << LogQuoted(pulled.ok() ? "ok" : Message(pulled));
  } else if (!pulled.ok() && pull_log_.Admit(Message(pulled), context_.clock->Now())) {
    FRESHET_LOG(Info) << "event=pull_failed job=" << job_
                      << " reason=" << LogQuoted(Message(pulled));
  }
}

void RolloutWork::StartEvaluation(const cluster::v1::Evaluate& evaluate) {
  const absl::Status started = TryStartEvaluation(evaluate);
  if (started.ok()) return;
  const absl::Status abandoned =
      store_->evaluations().Abandon(evaluate.evaluation_id(), std::string(Message(started)));
  FRESHET_LOG(Warning) << "event=evaluation_not_started job=" << job_
                       << " reason=" << LogQuoted(Message(started))
                       << " abandoned=" << LogQuoted(abandoned.ok() ? "ok" : Message(abandoned));
}

absl::Status RolloutWork::TryStartEvaluation(const cluster::v1::Evaluate& evaluate) {
  const PolicyVersion wanted{evaluate.policy().lineage(), evaluate.policy().version()};
  const std::optional<WeightSnapshot> weights = subscriber_->AtLeast(wanted);
  if (!weights.has_value()) {
    return FailedPrecondition("this engine does not hold version ", wanted.version, " yet");
  }
  FRESHET_ASSIGN_OR_RETURN(const job::v1::EvalSet set, FindEvalSet(spec_, evaluate.eval_set()));
  EvaluationRun run;
  run.id = evaluate.evaluation_id();
  run.weights = *weights;
  // Training may go on before the other sets are evaluated with this version.
  const bool last_set = set.name() == EvalSets(spec_).back().name();
  subscriber_->Hold(last_set ? std::nullopt : weights);
  run.samples_per_prompt = set.samples_per_prompt();
  run.sampling = MakeEvalSampling(spec_, set, model_.config, *tokenizer_);
  run.seed = EvalSeed(spec_);
  const int64_t rows = std::min(evaluate.rows(), kMaxEvaluationRows);
  while (std::ssize(run.prompts) < rows) {
    cluster::v1::FetchRowsRequest request;
    request.set_job_id(job_);
    request.set_held_out(true);
    request.set_eval_set(set.name());
    request.set_first(std::ssize(run.prompts));
    request.set_count(std::min(kRowsPerCall, rows - request.first()));
    FRESHET_ASSIGN_OR_RETURN(const cluster::v1::FetchRowsReply reply,
                             controller_.FetchRows(request));
    if (reply.rows().empty()) {
      return FailedPrecondition("the controller has no row ", request.first());
    }
    for (const trajectory::v1::DatasetRow& row : reply.rows()) {
      FRESHET_ASSIGN_OR_RETURN(
          run.prompts.emplace_back(),
          MakeHeldOutPrompt(spec_, *tokenizer_, std::ssize(run.prompts), row.prompt(),
                            {row.attributes().begin(), row.attributes().end()}));
    }
  }
  if (worker_->StartEvaluation(std::move(run))) return absl::OkStatus();
  return StatusOf(absl::StatusCode::kResourceExhausted, "another evaluation runs on this engine");
}

void RolloutWork::FillStatus(AssignmentStatus& status) const {
  const std::optional<CommittedWeights> weights = subscriber_->Committed();
  const RolloutCounters counters = worker_->counters();
  if (weights.has_value()) {
    const PolicyVersion& policy = weights->snapshot.manifest.policy;
    status.mutable_policy()->set_lineage(policy.lineage);
    status.mutable_policy()->set_version(policy.version);
    const std::string& last = WaitReason(counters);
    status.set_waits_for(counters.engine.servers_down == 0 ? last
                         : last.empty()                    ? "its inference server starts"
                                        : StrCat("its inference server starts; ", last));
    {
      MutexLock lock(mu_);
      if (failed_pull_.has_value()) {
        status.set_waits_for(
            StrCat("newer weights do not arrive: ", failed_pull_->error, "; ", last));
      }
    }
    if (episodes_ == nullptr) return;
    const absl::Time now = context_.clock->Now();
    const std::string silence = DescribeSilence(counters.episodes, episodes_->label(), now);
    if (silence.empty()) return;
    status.set_waits_for(
        counters.handed_back.empty() ? silence : StrCat(silence, "; ", counters.handed_back));
    status.set_environment_silent_seconds(
        absl::ToDoubleSeconds(now - counters.episodes.silent_since));
  } else {
    status.set_waits_for("weights of the trainer");
  }
}

void RolloutWork::FillLoad(cluster::v1::WorkerStatus& status) const {
  const RolloutCounters counters = worker_->counters();
  const absl::Time now = context_.clock->Now();
  status.set_has_weights(subscriber_->Committed().has_value());
  status.set_refused_worker(counters.fenced_name);
  MutexLock lock(mu_);
  const double seconds = absl::ToDoubleSeconds(now - last_load_);
  if (last_load_ != absl::InfinitePast() && seconds > 0) {
    const double idle = (counters.idle_seconds - last_idle_) / seconds;
    status.set_busy_ratio(std::clamp(1.0 - idle, 0.0, 1.0));
    status.set_tokens_per_second(static_cast<double>(counters.tokens_generated - last_tokens_) /
                                 seconds);
  }
  last_load_ = now;
  last_idle_ = counters.idle_seconds;
  last_tokens_ = counters.tokens_generated;
  status.set_open_episodes(counters.episodes.open);
  status.set_running_sequences(counters.engine.running_sequences);
  if (counters.engine.cache_blocks > 0) {
    status.set_kv_cache_used_ratio(1.0 - static_cast<double>(counters.engine.cache_blocks_free) /
                                             static_cast<double>(counters.engine.cache_blocks));
  }
  status.set_queued(counters.unsent_samples);
}

void RolloutWork::SetWorker(const std::string& worker) { worker_->Rename(worker); }

void RolloutWork::SetPaused(bool paused) { worker_->SetPaused(paused); }

void RolloutWork::SetMembers(const cluster::v1::Members& members) {
  const int64_t engines = std::max(members.rollouts_size(), 1);
  worker_->SetLeaseShare((spec_.prompts_per_step() + engines - 1) / engines);
  {
    MutexLock lock(mu_);
    members_ = members;
    wake_.NotifyAll();
  }
  if (environments_ == nullptr) return;
  std::vector<std::string> addresses;
  for (const weights::v1::Member& member : members.environments()) {
    addresses.push_back(member.address());
  }
  environments_->SetAddresses(std::move(addresses));
}

void RolloutWork::Evaluate(const cluster::v1::Evaluate& evaluate) {
  MutexLock lock(mu_);
  evaluate_ = evaluate;
  wake_.NotifyAll();
}

}  // namespace freshet
