#include "controller/jobs/driver/job_inputs.h"

#include "controller/jobs/plan/submission.h"
#include "gtest/gtest.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"

namespace freshet {
namespace {

TEST(JobInputs, RowsAreHandedOutInBoundedPages) {
  Submission submission;
  submission.yaml =
      TinyClusterJob() + "eval: {rows: 6, sets: [{name: all}, {name: few, rows: 2}]}\n";
  const CheckedSubmission checked = CheckSubmission(submission, DataRoots::Unlimited());
  ASSERT_TRUE(checked.errors.empty()) << FormatConfigErrors(checked.errors);
  const job::v1::JobSpec& spec = checked.spec;
  FakeTrainerGateway trainers;
  const auto opened = OpenJobInputs(spec, *trainers.DescribeModel("", spec, absl::Seconds(1)),
                                    DataRoots::Unlimited());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const JobInputs& inputs = **opened;
  const RowSource train = TrainingRows(inputs);
  EXPECT_EQ(train.total, 50);
  EXPECT_EQ(FetchRows(train, 50, 1)->size(), 0U);
  EXPECT_EQ(FetchRows(train, 51, 1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(FetchRows(train, -1, 1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(FetchRows(train, 0, kMaxRowsPerFetch + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto first = HeldOutRowsOf(spec, inputs, "");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->total, 6);
  EXPECT_EQ(FetchRows(*first, 4, 10)->size(), 2U);
  EXPECT_EQ(HeldOutRowsOf(spec, inputs, "few")->total, 2);
  EXPECT_EQ(HeldOutRowsOf(spec, inputs, "other").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace freshet
