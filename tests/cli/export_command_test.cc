// checkpoint list and export, ledger verify of a job, export tensorboard.
#include <algorithm>
#include <filesystem>

#include "base/digest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_fixture.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ExportCommandTest : public CommandFixture {
 protected:
  ExportCommandTest() {
    job::v1::Job job = EndedJob("a", job::v1::JOB_STATE_SUCCEEDED);
    job.mutable_spec()->set_name("a");
    service_.AddJob(job, {});
  }
  static job::v1::FileChunk Chunk(const std::string& path, const std::string& data) {
    job::v1::FileChunk chunk;
    chunk.set_path(path);
    chunk.set_data(data);
    return chunk;
  }
  void SetCheckpoint(const std::string& sent, const std::string& promised) {
    const nlohmann::json manifest = {{"files",
                                      {{{"name", "model.safetensors"},
                                        {"bytes", promised.size()},
                                        {"sha256", Sha256Hex(promised)}}}}};
    service_.SetCheckpoint({Chunk("model.safetensors", sent.substr(0, 2)),
                            Chunk("", sent.substr(2)), Chunk("manifest.json", manifest.dump())});
  }
};

TEST_F(ExportCommandTest, ListsCheckpoints) {
  EXPECT_THAT(Run({"checkpoint", "list", "a"}).out, HasSubstr("20    0"));
  EXPECT_EQ(Run({"checkpoint", "list", "a", "-o", "name"}).out, "20\n");
}

TEST_F(ExportCommandTest, ExportsACheckpoint) {
  SetCheckpoint("weights", "weights");
  const ChildResult result = Run({"checkpoint", "export", "a", "out"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(folder_.Read("out/model.safetensors"), "weights");
  const ChildResult again = Run({"checkpoint", "export", "a", "out"});
  EXPECT_EQ(again.exit_code, 3);
  EXPECT_THAT(again.err, HasSubstr("exists already"));
}

TEST_F(ExportCommandTest, LeavesNothingOfABadTransfer) {
  SetCheckpoint("weightz", "weights");
  const ChildResult result = Run({"checkpoint", "export", "a", "out"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("model.safetensors"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  service_.FailNext("ExportCheckpoint", absl::NotFoundError("no checkpoint 7; freshet checkpoint "
                                                            "list a names those there are"));
  EXPECT_EQ(Run({"checkpoint", "export", "a", "out", "--step", "7"}).exit_code, 4);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(ExportCommandTest, VerifiesTheLedgerOfAJob) {
  const std::string open =
      R"({"seq":1,"event":"open","job":"a","bound":1,"disposition":"wait","B":1,"G":1})";
  const std::string trained =
      R"({"seq":2,"event":"trained","epoch":1,"lineage":0,"step":1,"train_version":0,)"
      R"("uid":"a/0/0/0","prompt":0,"attempt":0,"sample":0,"redo":false,"loss_tokens":2,)"
      R"("masked_tokens":0,"spans":[{"lineage":0,"version":0,"begin":0,"end":2}],)"
      R"("min_version":0,"max_version":0})";
  service_.SetLedger({open, trained});
  const ChildResult good = Run({"ledger", "verify", "a"});
  EXPECT_EQ(good.exit_code, 0) << good.out << good.err;
  EXPECT_THAT(good.out, HasSubstr("ok: every promise holds"));
  std::string twice = trained;
  twice.replace(twice.find("\"seq\":2"), 7, "\"seq\":3");
  service_.SetLedger({open, trained, twice});
  const ChildResult bad = Run({"ledger", "verify", "a"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.out, HasSubstr("violation"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(ExportCommandTest, ExportsARunForTensorboard) {
  folder_.Write("run/metrics.jsonl", R"({"step": 1, "reward_mean": 0.5})"
                                     "\n");
  const ChildResult result = Run({"export", "tensorboard", "run", "tb"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tb/events.out.tfevents."));
  EXPECT_EQ(Run({"export", "tensorboard", "./absent"}).exit_code, 3);
}

TEST_F(ExportCommandTest, ExportsAJobForTensorboard) {
  service_.AddJob(EndedJob("b", job::v1::JOB_STATE_SUCCEEDED),
                  EventsOfRun(3, job::v1::JOB_STATE_SUCCEEDED));
  const ChildResult result = Run({"export", "tensorboard", "b"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tensorboard/b/events.out.tfevents."));
  EXPECT_THAT(result.err, HasSubstr("tensorboard --logdir tensorboard/b"));
  const std::string file = folder_.Read(result.out.substr(0, result.out.find('\n')));
  EXPECT_THAT(file, HasSubstr("train/reward_mean"));
  EXPECT_EQ(Run({"export", "tensorboard", "nobody"}).exit_code, 4);
  EXPECT_EQ(Run({"export", "tensorboard", "b", "--server", "127.0.0.1:1"}).exit_code, 7);
}

}  // namespace
}  // namespace freshet
