#include "controller/jobs/driver/evaluation_score.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int64_t kItemsPerCall = 256;

class Scoring {
 public:
  Scoring(const std::string& job, const job::v1::JobSpec& spec, const JobInputs& inputs,
          const cluster::v1::ReportEvaluationRequest& report, RewardGateway& rewards,
          const EvaluationScoring& options)
      : job_(job),
        spec_(spec),
        inputs_(inputs),
        report_(report),
        rewards_(rewards),
        options_(options) {}

  absl::StatusOr<EvalMetrics> Run() {
    const int64_t rows = NumRows(spec_, inputs_, /*held_out=*/true);
    if (report_.completions_size() != rows || report_.completion_tokens_size() != rows) {
      return InvalidArgument("completions: the evaluation has ", rows, " rows, the report ",
                             report_.completions_size());
    }
    if (report_.env_rewards_size() != 0 && report_.env_rewards_size() != rows) {
      return InvalidArgument("env_rewards: the evaluation has ", rows, " rows, the report ",
                             report_.env_rewards_size());
    }
    if (report_.stopped_size() != rows) {
      return InvalidArgument("stopped: the evaluation has ", rows, " rows, the report ",
                             report_.stopped_size());
    }
    for (const auto& [row, error] : report_.failed_rows()) {
      if (row >= 0 && row < rows) continue;
      return InvalidArgument("failed_rows: the evaluation has ", rows, " rows, the report names ",
                             row);
    }
    EvalMetrics metrics;
    metrics.eval_name = spec_.eval().name();
    metrics.policy_version = report_.policy().version();
    metrics.lineage = report_.policy().lineage();
    metrics.rows = rows;
    for (int64_t first = 0; first < rows; first += kItemsPerCall) {
      FRESHET_RETURN_IF_ERROR(ScoreSlice(first, std::min(first + kItemsPerCall, rows), metrics));
    }
    if (metrics.eval_failed_rows > 0) {
      FRESHET_LOG(Warning) << "event=evaluation_rows_failed version=" << metrics.policy_version
                           << " count=" << metrics.eval_failed_rows
                           << " first=" << LogQuoted(first_failure_);
    }
    const int64_t scored = rows - metrics.eval_failed_rows;
    if (scored == 0)
      return FailedPrecondition("none of ", rows, " rows has a score; ", first_failure_);
    // Sum before dividing, so that a perfect score is exactly 1.
    const auto count = static_cast<double>(scored);
    metrics.eval_accuracy /= count;
    for (auto& [name, value] : metrics.reward_components) value /= count;
    metrics.completion_length_mean /= count;
    return metrics;
  }

 private:
  absl::StatusOr<reward::v1::ScoreItem> MakeItem(int64_t row) const {
    FRESHET_ASSIGN_OR_RETURN(DatasetRow data, inputs_.data.held_out->Get(row));
    reward::v1::ScoreItem item;
    const int index = static_cast<int>(row);
    item.set_prompt(data.prompt);
    item.set_completion(report_.completions(index));
    item.set_completion_tokens(report_.completion_tokens(index));
    item.set_stopped(report_.stopped(index));
    if (report_.env_rewards_size() > 0) item.set_env_reward(report_.env_rewards(index));
    for (auto& [name, value] : data.attributes) {
      (*item.mutable_attributes())[name] = std::move(value);
    }
    return item;
  }

  absl::Status ScoreSlice(int64_t first, int64_t end, EvalMetrics& metrics) {
    std::vector<int64_t> open;
    for (int64_t row = first; row < end; ++row) {
      const auto failed = report_.failed_rows().find(row);
      if (failed == report_.failed_rows().end()) {
        open.push_back(row);
      } else {
        LeaveOut(row, failed->second, metrics);
      }
    }
    for (int64_t attempt = 1; !open.empty(); ++attempt) {
      if (attempt > 1) options_.pause();
      reward::v1::ScoreRequest request;
      request.set_job_id(job_);  // selects the job's own scorers and their connections
      for (const int64_t row : open) {
        FRESHET_ASSIGN_OR_RETURN(*request.add_items(), MakeItem(row));
      }
      FRESHET_ASSIGN_OR_RETURN(const reward::v1::ScoreReply reply, Call(request));
      std::vector<int64_t> failed;
      for (size_t i = 0; i < open.size(); ++i) {
        const trajectory::v1::Score& score = reply.scores(static_cast<int>(i));
        if (score.outcome() == trajectory::v1::SCORE_OUTCOME_OK ||
            score.outcome() == trajectory::v1::SCORE_OUTCOME_WRONG_FORMAT) {
          metrics.eval_accuracy += score.reward();
          for (const auto& [name, value] : score.components()) {
            metrics.reward_components[name] += value;
          }
          metrics.completion_length_mean +=
              static_cast<double>(report_.completion_tokens(static_cast<int>(open[i])));
        } else if (attempt >= spec_.reward().max_attempts()) {
          LeaveOut(open[i], score.error(), metrics);
        } else {
          failed.push_back(open[i]);
        }
      }
      open = std::move(failed);
    }
    return absl::OkStatus();
  }

  void LeaveOut(int64_t row, const std::string& error, EvalMetrics& metrics) {
    if (metrics.eval_failed_rows++ == 0) first_failure_ = StrCat("row ", row, ": ", error);
  }

  // One call, trying one reward worker after another.
  absl::StatusOr<reward::v1::ScoreReply> Call(const reward::v1::ScoreRequest& request) {
    absl::Status last = StatusOf(absl::StatusCode::kUnavailable, "no reward worker is available");
    for (int tries = 0; tries < options_.max_tries; options_.pause()) {
      if (options_.stopped()) return absl::CancelledError("stopped");
      const std::vector<std::string> workers = options_.reward_workers();
      if (workers.empty()) continue;  // wait for a worker, or until the evaluation is stopped
      const std::string& address = workers[next_worker_++ % workers.size()];
      absl::StatusOr<reward::v1::ScoreReply> reply =
          rewards_.Score(address, request, options_.call_deadline);
      if (reply.ok() && reply->scores_size() == request.items_size()) return reply;
      last = reply.ok() ? Internal("reward worker at ", address, " answered ", reply->scores_size(),
                                   " scores for ", request.items_size(), " items")
                        : reply.status();
      if (last.code() == absl::StatusCode::kInvalidArgument) return last;
      // An unavailable worker or scorer service does not count as a try.
      if (!absl::IsUnavailable(last)) ++tries;
    }
    return last;
  }

  const std::string& job_;
  const job::v1::JobSpec& spec_;
  const JobInputs& inputs_;
  const cluster::v1::ReportEvaluationRequest& report_;
  RewardGateway& rewards_;
  const EvaluationScoring& options_;
  size_t next_worker_ = 0;
  std::string first_failure_;
};

}  // namespace

absl::StatusOr<EvalMetrics> ScoreEvaluation(const std::string& job, const job::v1::JobSpec& spec,
                                            const JobInputs& inputs,
                                            const cluster::v1::ReportEvaluationRequest& report,
                                            RewardGateway& rewards,
                                            const EvaluationScoring& scoring) {
  return Scoring(job, spec, inputs, report, rewards, scoring).Run();
}

}  // namespace freshet
