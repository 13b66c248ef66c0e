#include "controller/jobs/driver/job_inputs.h"

#include "controller/jobs/plan/submission.h"
#include "gtest/gtest.h"
#include "tests/controller/jobs/driver/cluster_fakes.h"

namespace freshet {
namespace {

TEST(JobInputs, RowsAreHandedOutInBoundedPages) {
  Submission submission;
  submission.yaml = TinyClusterJob() + "eval: {rows: 6}\n";
  const CheckedSubmission checked = CheckSubmission(submission, DataRoots::Unlimited());
  ASSERT_TRUE(checked.errors.empty()) << FormatConfigErrors(checked.errors);
  const job::v1::JobSpec& spec = checked.spec;
  FakeTrainerGateway trainers;
  const auto opened = OpenJobInputs(spec, *trainers.DescribeModel("", spec, absl::Seconds(1)),
                                    DataRoots::Unlimited());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const JobInputs& inputs = **opened;
  EXPECT_EQ(NumRows(spec, inputs, true), 6);
  EXPECT_EQ(NumRows(spec, inputs, false), 50);
  EXPECT_EQ(FetchRows(spec, inputs, true, 4, 10)->size(), 2U);
  EXPECT_EQ(FetchRows(spec, inputs, false, 50, 1)->size(), 0U);
  EXPECT_EQ(FetchRows(spec, inputs, false, 51, 1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(FetchRows(spec, inputs, false, -1, 1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(FetchRows(spec, inputs, false, 0, kMaxRowsPerFetch + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace freshet
