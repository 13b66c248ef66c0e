#include "tests/datastore/redis/store_history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "base/random.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr absl::Duration kTtl = absl::Seconds(10);
// Repeats of a request id come before the store deletes what its leases held.
constexpr absl::Duration kRepeatWithin = absl::Seconds(50);

uint64_t Draw(uint64_t seed, uint64_t what) { return RandomBits(seed, 1000 + what); }

}  // namespace

StoreOptions HistoryOptions(uint64_t seed, Disposition disposition) {
  constexpr int64_t kEtas[] = {0, 1, 1, 2, 4};
  StoreOptions options;
  options.job = StrCat("job-", seed);
  options.staleness.max = kEtas[Draw(seed, 0) % 5];
  options.staleness.disposition = disposition;
  options.staleness.groups_per_step = 1 + static_cast<int64_t>(Draw(seed, 1) % 3);
  options.staleness.max_in_flight = 2 + static_cast<int64_t>(Draw(seed, 2) % 8);
  options.group_size = 1 + static_cast<int32_t>(Draw(seed, 3) % 3);
  options.last_step = 10 + static_cast<int64_t>(Draw(seed, 4) % 8);
  options.capacity_groups = (options.staleness.max + 1) * options.staleness.groups_per_step +
                            static_cast<int64_t>(Draw(seed, 5) % 8);
  options.max_queued_prompts = 2 + static_cast<int64_t>(Draw(seed, 6) % 8);
  options.lease_ttl = kTtl;
  options.max_row_failures = 1 + static_cast<int32_t>(Draw(seed, 7) % 3);
  options.max_requeues = static_cast<int32_t>(Draw(seed, 8) % 3);
  options.filter.zero_variance = options.group_size > 1 && Draw(seed, 10) % 2 == 0;
  if (Draw(seed, 14) % 4 == 0) options.filter.min_mean = 0.15;
  if (Draw(seed, 14) % 6 == 0) options.filter.max_mean = 0.85;
  if (options.group_size > 1 && options.staleness.max > 0 && Draw(seed, 15) % 2 == 0) {
    options.replay = ReplayOptions{
        options.staleness.max + 1 + static_cast<int64_t>(Draw(seed, 16) % 4), 1.0,
        1 + static_cast<int64_t>(Draw(seed, 17) % 3), 1 + static_cast<int64_t>(Draw(seed, 18) % 2)};
  }
  if (options.group_size > 1 && options.staleness.max > 0 && Draw(seed, 19) % 2 == 0) {
    options.group_size = 3;
    options.adaptive = AdaptiveOptions{2, 0.5, Draw(seed, 21) % 2 == 0 ? 1.5 : 0};
  }
  options.max_filtered_in_a_row = Draw(seed, 11) % 6 == 0 ? 2 : 0;
  options.max_lease_failures = 1 + static_cast<int32_t>(Draw(seed, 12) % 4);
  options.max_hand_backs = 1 + static_cast<int32_t>(Draw(seed, 13) % 5);
  return options;
}

StoreOrigin HistoryOrigin(uint64_t seed) {
  StoreOrigin origin;
  if (Draw(seed, 20) % 4 != 0) return origin;
  origin.policy = {2, 5};
  origin.epoch = 3;
  origin.ledger_seq = 100;
  origin.digest = std::string(64, 'b');
  origin.resumed = true;
  origin.cursor = {4, {6, 7, 11}};
  return origin;
}

StoreHistory::StoreHistory(uint64_t seed, TrajectoryStore& one, TrajectoryStore& other,
                           FakeClock& clock, StoreOrigin origin, HistoryCounts& counts)
    : state_(Draw(seed, 30)),
      calm_(seed % 3 == 0),
      one_(one),
      other_(other),
      clock_(clock),
      origin_(std::move(origin)),
      counts_(counts),
      repeat_prompts_(one.options().replay.has_value() || one.options().adaptive.has_value()),
      next_ordinal_(origin_.cursor.low_water),
      version_(origin_.policy.version),
      lineage_(origin_.policy.lineage),
      redo_next_(version_ + 1),
      ledger_seq_(origin_.ledger_seq) {}

int64_t StoreHistory::Below(int64_t n) {
  state_ = Mix64(state_);
  return static_cast<int64_t>((state_ >> 11) % static_cast<uint64_t>(n));
}
bool StoreHistory::Chance(double p) {
  state_ = Mix64(state_);
  if (calm_ && p < 0.15) p /= 8;  // what is rare is mostly a fault
  return ToUniform(state_) < p;
}

template <typename Call>
auto StoreHistory::Both(const std::string& what, Call call)
    -> decltype(call(std::declval<TrajectoryStore&>())) {
  auto answer = call(one_);
  const std::string one = Text(answer);
  const std::string other = Text(call(other_));
  const std::string operation = what.substr(0, what.find(' '));
  ++counts_.calls[operation];
  if (one.substr(0, 3) == "FAI" || one.substr(0, 3) == "INV") {
    ++counts_.answers[StrCat(operation, " ", one.substr(0, one.find(':')))];
  }
  if (one != other && difference_.empty()) {
    difference_ = StrCat(what, "\none:   ", one, "\nother: ", other);
  }
  return answer;
}

std::string StoreHistory::Run(int steps) {
  if (origin_.resumed && Chance(0.8)) {
    (void)Both("RecordResume", [](auto& s) { return s.RecordResume(4, 1, 5, "sha"); });
  }
  PutPrompts();
  OpenEpochAt(origin_.policy);
  if (calm_) steps *= 2;
  for (int step = 0; step < steps && difference_.empty(); ++step) {
    Step();
    if (step % 8 == 7) Compare();
    if (!difference_.empty()) return StrCat("call ", step, ": ", difference_);
  }
  Compare();
  const auto stats = one_.Stats();
  for (const auto& [reason, groups] : stats->ended_by_reason) {
    counts_.ends[reason.substr(0, reason.find(':'))] += groups;
  }
  counts_.replayed += stats->replayed_samples;
  counts_.skipped += stats->skipped_samples;
  counts_.trained += stats->transitions[static_cast<int>(GroupState::kTrained)];
  return difference_;
}

void StoreHistory::Step() {
  struct Choice {
    int64_t weight;
    void (StoreHistory::*call)();
  };
  static constexpr Choice kChoices[] = {
      {8, &StoreHistory::PutPrompts},   {14, &StoreHistory::Lease},
      {10, &StoreHistory::PutSample},   {12, &StoreHistory::FinishLease},
      {5, &StoreHistory::PutSamples},   {5, &StoreHistory::PutRows},
      {3, &StoreHistory::ReturnLease},  {4, &StoreHistory::Renew},
      {2, &StoreHistory::FailLease},    {4, &StoreHistory::LeaseRows},
      {6, &StoreHistory::PutFields},    {14, &StoreHistory::ServeRows},
      {4, &StoreHistory::EndRow},       {3, &StoreHistory::OpenEpoch},
      {5, &StoreHistory::NextBatch},    {16, &StoreHistory::Commit},
      {6, &StoreHistory::MarkDurable},  {1, &StoreHistory::Revoke},
      {4, &StoreHistory::PassTime},     {1, &StoreHistory::TrimLedger},
      {2, &StoreHistory::HandBackLease}};
  int64_t total = 0;
  for (const Choice& choice : kChoices) total += choice.weight;
  int64_t drawn = Below(total);
  for (const Choice& choice : kChoices) {
    drawn -= choice.weight;
    // Weights up to 4 are those of faults and of side work.
    if (drawn < 0 && choice.weight <= 4 && calm_ && Below(4) > 0) return Commit();
    if (drawn < 0) return (this->*choice.call)();
  }
}

std::string StoreHistory::Worker(const char* kind) {
  const std::string name = StrCat(kind, Below(3));
  return StrCat(name, "#", worker_epochs_[name]);
}

void StoreHistory::PutPrompts() {
  std::vector<Prompt> prompts;
  int64_t ordinal = next_ordinal_;
  if (Chance(0.1)) ordinal = std::max<int64_t>(0, ordinal - 2);
  const int64_t count = 1 + Below(4);
  for (int64_t i = 0; i < count; ++i) {
    Prompt prompt;
    prompt.ordinal = ordinal;
    prompt.first_attempt = static_cast<int32_t>(Below(3));
    prompt.prompt_ids = {static_cast<int32_t>(Below(100)), 2};
    prompt.attributes["answer"] = StrCat(ordinal);
    if (repeat_prompts_) {  // rows of a small dataset
      prompt.prompt_ids = {3, 2};
      prompt.attributes["answer"] = StrCat(ordinal % 2);
    }
    prompts.push_back(std::move(prompt));
    ordinal += Chance(0.1) ? 2 : 1;
  }
  if (Chance(0.03)) prompts.back().ordinal = Chance(0.5) ? prompts.front().ordinal - 1 : -1;
  if (Chance(0.02)) prompts.back().ordinal += (int64_t{1} << 20) + 5;
  if (Chance(0.02)) prompts.back().first_attempt = -1;
  const auto reply = Both("PutPrompts", [&](auto& s) { return s.PutPrompts(prompts); });
  if (reply.ok()) next_ordinal_ = std::max(next_ordinal_, reply->high_water + 1);
}

void StoreHistory::Lease() {
  LeaseRequest request;
  const bool repeat = Chance(0.1) && clock_.Now() - last_request_at_ < kRepeatWithin;
  if (repeat) {
    request = last_request_;
  } else {
    request.worker = Chance(0.02) ? "" : Worker("w");
    request.request_id = Chance(0.3) ? "" : StrCat("r", requests_++);
    request.engine = {lineage_, version_ - (Chance(0.25) ? Below(3) : 0)};
    request.engine.version = std::max<int64_t>(0, request.engine.version);
    if (Chance(0.03)) ++request.engine.version;
    if (Chance(0.02)) request.engine.lineage = 1 + Below(3);
    request.max_groups = Chance(0.02) ? -1 : Below(4);
    last_request_ = request;
    last_request_at_ = clock_.Now();
  }
  const auto reply = Both(StrCat("LeasePrompts ", request.worker, " ", request.request_id),
                          [&](auto& s) { return s.LeasePrompts(request); });
  if (!reply.ok() || repeat) return;
  for (const GroupLease& lease : reply->leases) {
    work_.push_back({lease, request.worker, request.engine});
  }
}

Response StoreHistory::RandomResponse(const PolicyVersion& from, const Response& begin) {
  Response response = begin;
  PolicyVersion policy = begin.spans.empty() ? from : begin.spans.back().policy;
  policy = {std::max(policy.lineage, from.lineage), std::max(policy.version, from.version)};
  const int64_t pieces = 1 + Below(2);
  const bool truncated = !begin.sampling_logprobs.empty() || Chance(0.3);
  if (truncated) response.sampling_logprobs = begin.behavior_logprobs;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t tokens = 1 + Below(4);
    const auto first = static_cast<int32_t>(response.response_ids.size());
    for (int64_t i = 0; i < tokens; ++i) {
      response.response_ids.push_back(static_cast<int32_t>(Below(1000)));
      response.behavior_logprobs.push_back(-0.125f * static_cast<float>(Below(50)));
      if (truncated) response.sampling_logprobs.push_back(-0.25f * static_cast<float>(Below(9)));
      response.loss_mask.push_back(Chance(0.8) ? 1 : 0);
    }
    const auto end = static_cast<int32_t>(response.response_ids.size());
    response.spans.push_back({policy, first, end});
    if (policy.version < version_ && Chance(0.7)) ++policy.version;
    if (policy.lineage < lineage_ && Chance(0.5)) ++policy.lineage;
  }
  if (Chance(0.98)) response.loss_mask.back() = 1;
  response.finish = FinishReason::kStop;
  return response;
}

void StoreHistory::Spoil(Response& response) {
  switch (Below(8)) {
    case 0:
      response.behavior_logprobs.pop_back();
      break;
    case 1:
      response.spans.back().policy.version = version_ + 1;
      break;
    case 2:
      response.spans.front().policy.version = -1;
      break;
    case 3:
      (Chance(0.5) ? response.spans.back() : response.spans.front()).policy.lineage =
          Chance(0.5) ? lineage_ + 1 : Below(4) - 1;
      break;
    case 4:
      response.response_ids[0] = -1;
      break;
    case 5:
      response.behavior_logprobs[0] = std::numeric_limits<float>::quiet_NaN();
      break;
    case 6:
      response.spans.back().end += 1;
      break;
    default:
      response = Response{};
      break;
  }
}

SamplePut StoreHistory::RandomPut() {
  // Mostly the newest leases; old ones are dead for the most part.
  const int64_t back =
      Chance(0.8) ? Below(std::min<int64_t>(4, std::ssize(work_))) : Below(std::ssize(work_));
  const Work& work = work_[work_.size() - 1 - static_cast<size_t>(back)];
  SamplePut put;
  if (work.lease.missing.empty()) return {work.lease.token, 0, nullptr};
  const auto i = static_cast<size_t>(Below(std::ssize(work.lease.missing)));
  put.index = work.lease.missing[i];
  if (Chance(0.02)) put.index = static_cast<int32_t>(Below(5)) - 1;
  Response response = RandomResponse(work.engine, work.lease.partials[i]);
  if (Chance(0.05)) Spoil(response);
  put.token = Chance(0.01) ? 12345 : work.lease.token;
  if (Chance(0.3)) put.score = RandomScore();
  put.response = std::make_shared<const Response>(std::move(response));
  return put;
}

void StoreHistory::PutSample() {
  if (work_.empty()) return Lease();
  const SamplePut put = RandomPut();
  if (put.response == nullptr) return;
  (void)Both(StrCat("PutSample ", put.token, " ", put.index, " ", Text(*put.response)),
             [&](auto& s) { return s.PutSample(put.token, put.index, *put.response); });
}

void StoreHistory::PutSamples() {
  if (work_.empty()) return Lease();
  std::vector<SamplePut> puts;
  std::string what = "PutSamples";
  for (int64_t n = Below(9); n >= 0; --n) {
    puts.push_back(Chance(0.1) && !puts.empty() ? puts.front() : RandomPut());
    what += StrCat(" ", puts.back().token, "/", puts.back().index);
  }
  (void)Both(what, [&](auto& s) { return s.PutSamples(puts); });
}

void StoreHistory::FinishLease() {
  if (work_.empty()) return Lease();
  const int64_t back = Below(std::min<int64_t>(3, std::ssize(work_)));
  const auto it = work_.end() - 1 - back;
  const Work work = *it;
  std::vector<SamplePut> puts;
  const bool scored = Chance(0.3);
  for (size_t i = 0; i < work.lease.missing.size(); ++i) {
    puts.push_back(
        {work.lease.token, work.lease.missing[i],
         std::make_shared<const Response>(RandomResponse(work.engine, work.lease.partials[i]))});
    if (scored && Chance(0.9)) puts.back().score = RandomScore();
  }
  if (Chance(0.5)) {
    (void)Both(StrCat("PutSamples ", work.lease.token),
               [&](auto& s) { return s.PutSamples(puts); });
  } else {
    for (const SamplePut& put : puts) {
      (void)Both(StrCat("PutSample ", put.token, " ", put.index, " ", Text(*put.response)),
                 [&](auto& s) { return s.PutSample(put.token, put.index, *put.response); });
    }
  }
  if (Chance(0.9)) work_.erase(it);
}

void StoreHistory::ReturnLease() {
  if (work_.empty()) return;
  const Work& work =
      work_[work_.size() - 1 - static_cast<size_t>(Below(std::min<int64_t>(3, std::ssize(work_))))];
  std::vector<int32_t> indices;
  std::vector<Response> partials;
  for (size_t i = 0; i < work.lease.missing.size(); ++i) {
    if (Chance(0.3)) continue;
    indices.push_back(work.lease.missing[i]);
    partials.push_back(Chance(0.3) ? Response{}
                                   : RandomResponse(work.engine, work.lease.partials[i]));
    if (Chance(0.05) && !partials.back().response_ids.empty()) Spoil(partials.back());
  }
  if (Chance(0.03)) indices.push_back(0);
  if (Chance(0.03)) partials.emplace_back();
  (void)Both(StrCat("ReturnLease ", work.lease.token),
             [&](auto& s) { return s.ReturnLease(work.lease.token, indices, partials); });
}

void StoreHistory::FailLease() { GiveUpLease(/*failed=*/true); }

// Often all of what is leased, as when an environment is away.
void StoreHistory::HandBackLease() {
  for (int64_t n = Chance(0.4) ? 4 : 1; n > 0; --n) {
    if (Chance(0.4)) Lease();
    GiveUpLease(/*failed=*/false);
    if (Chance(0.3)) clock_.Advance(kTtl / 2);
  }
}

void StoreHistory::GiveUpLease(bool failed) {
  if (work_.empty()) return;
  const Work& work =
      work_[work_.size() - 1 - static_cast<size_t>(Below(std::min<int64_t>(3, std::ssize(work_))))];
  const std::string reason = Chance(0.1) ? std::string(400, 'y') : "the environment raised";
  const int64_t token = Chance(0.02) ? 12345 : work.lease.token;
  if (failed) {
    (void)Both(StrCat("FailLease ", token), [&](auto& s) { return s.FailLease(token, reason); });
  } else {
    (void)Both(StrCat("HandBackLease ", token),
               [&](auto& s) { return s.HandBackLease(token, reason); });
  }
}

void StoreHistory::Renew() {
  std::vector<int64_t> tokens;
  for (int i = 0; i < 3; ++i) {
    if (!work_.empty() && Chance(0.7)) {
      tokens.push_back(work_[static_cast<size_t>(Below(std::ssize(work_)))].lease.token);
    }
    if (!rows_.empty() && Chance(0.4)) {
      tokens.push_back(rows_[static_cast<size_t>(Below(std::ssize(rows_)))]);
    }
  }
  const std::string worker = Worker(Chance(0.7) ? "w" : "r");
  (void)Both("RenewLeases " + worker, [&](auto& s) { return s.RenewLeases(worker, tokens); });
}

void StoreHistory::LeaseRows() {
  const bool again = Chance(0.3) && !last_rows_.worker.empty();
  if (!again) {
    last_rows_ = {Task::kScore, Chance(0.02) ? "" : Worker("r"),
                  Chance(0.3) ? "" : StrCat("q", requests_++), Chance(0.02) ? -1 : Below(5)};
  }
  const RowRequest& request = last_rows_;
  const auto rows = Both(StrCat("LeaseRows ", request.worker, " ", request.request_id),
                         [&](auto& s) { return s.LeaseRowsFor(request); });
  if (again && rows.ok() && !rows->empty()) ++counts_.answers["rows again"];
  if (!rows.ok() || Chance(0.2)) return;  // or the answer is lost
  for (const RowLease& row : *rows) rows_.push_back(row.token);
}

void StoreHistory::ServeRows() {
  const std::string worker = Worker("r");
  const auto rows =
      Both("LeaseRows " + worker, [&](auto& s) { return s.LeaseRows(Task::kScore, worker, 6); });
  if (!rows.ok()) return;
  const bool together = Chance(0.5);
  std::vector<RowPut> puts;
  for (const RowLease& row : *rows) {
    if (Chance(0.05)) {
      rows_.push_back(row.token);
    } else if (together) {
      puts.push_back({row.token, {RandomScore()}});
    } else {
      PutFieldsOf(row.token);
    }
  }
  if (!puts.empty()) (void)Both("PutRows", [&](auto& s) { return s.PutRows(Task::kScore, puts); });
}

int64_t StoreHistory::RandomRow() {
  const int64_t back =
      Chance(0.8) ? Below(std::min<int64_t>(5, std::ssize(rows_))) : Below(std::ssize(rows_));
  return rows_[rows_.size() - 1 - static_cast<size_t>(back)];
}

void StoreHistory::PutFields() {
  if (rows_.empty()) return LeaseRows();
  PutFieldsOf(RandomRow());
}

std::shared_ptr<const Score> StoreHistory::RandomScore() {
  auto score = std::make_shared<Score>();
  score->reward = Chance(0.4) ? 1.0 : 0.1 * static_cast<double>(Below(5));
  score->components["exact"] = score->reward;
  if (Chance(0.01)) score->reward = std::nan("");
  if (Chance(0.01)) score->outcome = ScoreOutcome::kInfraError;
  return Chance(0.97) ? score : nullptr;
}

void StoreHistory::PutFieldsOf(int64_t token) {
  const FieldValues values{RandomScore()};
  (void)Both(StrCat("PutFields ", token),
             [&](auto& s) { return s.PutFields(Task::kScore, token, values); });
}

void StoreHistory::PutRows() {
  if (rows_.empty()) return LeaseRows();
  std::vector<RowPut> puts;
  std::string what = "PutRows";
  for (int64_t n = Below(7); n >= 0; --n) {
    const int64_t token = RandomRow();
    puts.push_back(Chance(0.1) && !puts.empty() ? puts.front() : RowPut{token, {RandomScore()}});
    what += StrCat(" ", puts.back().token);
  }
  (void)Both(what, [&](auto& s) { return s.PutRows(Task::kScore, puts); });
}

void StoreHistory::EndRow() {
  if (rows_.empty()) return;
  const int64_t token =
      rows_[rows_.size() - 1 - static_cast<size_t>(Below(std::min<int64_t>(4, std::ssize(rows_))))];
  const std::string reason = Chance(0.1) ? std::string(400, 'x') : "no route";
  const RowEnd end = Chance(0.25) ? RowEnd::kReturned : RowEnd::kFailed;
  (void)Both(StrCat("EndRow ", token),
             [&](auto& s) { return s.EndRow(Task::kScore, token, end, reason); });
}

void StoreHistory::OpenEpoch() {
  PolicyVersion loaded{lineage_, version_};
  if (Chance(0.6)) loaded.version = std::max<int64_t>(0, loaded.version - Below(3));
  if (Chance(0.3)) loaded.lineage -= Below(lineage_ - origin_.policy.lineage + 1);
  if (Chance(0.05)) ++loaded.version;
  if (Chance(0.05)) ++loaded.lineage;
  OpenEpochAt(loaded);
}

void StoreHistory::OpenEpochAt(PolicyVersion loaded) {
  EpochRequest request{"t", loaded, "", Chance(0.5) ? StrCat("e", requests_++) : ""};
  if (Chance(0.2) && !last_epoch_request_.id.empty()) request = last_epoch_request_;
  if (!request.id.empty()) last_epoch_request_ = request;
  const auto reply = Both(StrCat("OpenEpoch ", request.loaded.lineage, " ", request.loaded.version),
                          [&](auto& s) { return s.OpenEpochFor(request); });
  if (!reply.ok() || reply->epoch == epoch_) return;
  epoch_ = reply->epoch;
  redo_next_ = request.loaded.version + 1;
  batch_.clear();
}

void StoreHistory::NextBatch() {
  int64_t step = redo_next_;
  if (Chance(0.05)) step += Below(3) - 1;
  const int64_t epoch = Chance(0.03) ? epoch_ - 1 : epoch_;
  const auto reply = Both(StrCat("NextBatch ", epoch, " ", step),
                          [&](auto& s) { return s.NextBatch(epoch, step); });
  if (reply.ok() && reply->ready && step <= version_) ++counts_.answers["redo"];
  if (!reply.ok() || !reply->ready || step != redo_next_) return;
  batch_.clear();
  for (const TrainGroup& group : reply->groups) batch_.push_back(group.ordinal);
  batch_step_ = step;
}

void StoreHistory::Commit() {
  if (batch_.empty()) return NextBatch();
  std::vector<int64_t> ordinals = batch_;
  if (Chance(0.3)) std::reverse(ordinals.begin(), ordinals.end());
  if (Chance(0.03)) ordinals.push_back(next_ordinal_);
  std::string hash = StrCat("hash", batch_step_);
  if (batch_step_ <= version_ && Chance(0.5)) hash = StrCat("other", Below(2));
  const int64_t epoch = Chance(0.03) ? epoch_ - 1 : epoch_;
  const int64_t step = Chance(0.03) ? batch_step_ + 1 : batch_step_;
  const auto receipt = Both(StrCat("CommitStep ", epoch, " ", step),
                            [&](auto& s) { return s.CommitStep(epoch, step, ordinals, hash); });
  if (!receipt.ok()) return;
  if (receipt->policy.lineage > lineage_) ++counts_.answers["diverged"];
  lineage_ = std::max(lineage_, receipt->policy.lineage);
  version_ = std::max(version_, receipt->step);
  redo_next_ = std::max(redo_next_, receipt->step + 1);
  if (Chance(0.9)) batch_.clear();  // else committed once more
}

void StoreHistory::MarkDurable() {
  const int64_t version = version_ - Below(3) + (Chance(0.05) ? 1 : 0);
  const int64_t epoch = Chance(0.05) ? epoch_ - 1 : epoch_;
  (void)Both(StrCat("MarkDurable ", version),
             [&](auto& s) { return s.MarkDurable(epoch, version, StrCat("sha", version)); });
}

void StoreHistory::Revoke() {
  const std::string kind = Chance(0.5) ? "w" : "r";
  const std::string name = StrCat(kind, Below(3));
  const std::string worker = Chance(0.05) ? "" : StrCat(name, "#", worker_epochs_[name]);
  (void)Both("RevokeWorker " + worker, [&](auto& s) { return s.RevokeWorker(worker); });
  if (Chance(0.8)) ++worker_epochs_[name];  // else the dead name goes on asking
}

void StoreHistory::PassTime() {
  clock_.Advance(Chance(0.12) ? kTtl + absl::Seconds(1) : absl::Milliseconds(Below(4000)));
  if (Chance(0.6)) (void)Both("Sweep", [](auto& s) { return s.Sweep(); });
}

void StoreHistory::TrimLedger() {
  const int64_t upto = std::max<int64_t>(0, ledger_seq_ - Below(10) + 2);
  (void)Both(StrCat("TrimLedger ", upto), [&](auto& s) { return s.TrimLedger(upto); });
}

void StoreHistory::CountGeneration() {
  // Reads the random state without advancing it, so this call does not change the history.
  const auto number = [this](uint64_t what, uint64_t n) {
    return static_cast<int64_t>(Draw(state_, what) % n);
  };
  const GenerationTotals added{number(0, 50) - 1, absl::Nanoseconds(number(1, 1'000'000'000)),
                               absl::Nanoseconds(number(2, 5000))};
  (void)Both(StrCat("CountGeneration ", added.tokens),
             [&](auto& s) { return s.CountGeneration(added); });
}

void StoreHistory::Compare() {
  CountGeneration();
  (void)Both("Stats", [](auto& s) { return s.Stats(); });
  (void)Both("Explain", [](auto& s) { return s.Explain(); });
  (void)Both("Cursor", [](auto& s) { return s.Cursor(); });
  const int64_t letters = Below(6);
  (void)Both(StrCat("DeadLetters ", letters), [&](auto& s) { return s.DeadLetters(letters); });
  const int64_t after = Chance(0.1) ? std::max<int64_t>(0, ledger_seq_ - 5) : ledger_seq_;
  const int64_t most = Chance(0.1) ? 2 : 10000;
  const auto rows = Both(StrCat("ReadLedger ", after, " ", most),
                         [&](auto& s) { return s.ReadLedger(after, most); });
  if (rows.ok() && !rows->empty()) ledger_seq_ = std::max(ledger_seq_, rows->back().seq);
}

}  // namespace freshet
