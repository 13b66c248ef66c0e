#include "rollout/service/evaluation_report.h"

#include "base/str_cat.h"
#include "base/utf8.h"

namespace freshet {
namespace {

constexpr size_t kMaxErrorBytes = 200;

}  // namespace

void AddAnswers(const EvaluationAnswers& answers, const Tokenizer& tokenizer, bool episodes,
                cluster::v1::ReportEvaluationRequest& report) {
  static const Response kNone;
  for (size_t i = 0; i < answers.size(); ++i) {
    const bool ok = answers[i].ok();
    if (!ok) {
      (*report.mutable_failed_rows())[static_cast<int64_t>(i)] =
          ValidUtf8(Message(answers[i].status()), kMaxErrorBytes);
    }
    const Response& response = ok ? *answers[i] : kNone;
    report.add_completions(ok ? tokenizer.Decode(response.response_ids, /*skip_special=*/true)
                              : "");
    report.add_completion_tokens(static_cast<int64_t>(response.response_ids.size()));
    report.add_stopped(ok && response.finish == FinishReason::kStop);
    if (episodes) report.add_env_rewards(response.env_reward.value_or(0));
  }
  if (!answers.empty() && report.failed_rows().size() == answers.size()) {
    report.set_error(
        ValidUtf8(StrCat("none of ", answers.size(),
                         " rows could be generated; row 0: ", Message(answers[0].status()))));
  }
}

}  // namespace freshet
