// checkpoint list and export, generated export, ledger verify of a job, and export to trackers.
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

TEST_F(ExportCommandTest, ExportsGeneratedFiles) {
  service_.SetGenerated(
      3, {Chunk("step-00000003.jsonl", "{}\n"),
          Chunk("manifest.json", R"({"files":[{"name":"step-00000003.jsonl","bytes":3,)"
                                 R"("sha256":")" +
                                     Sha256Hex("{}\n") + R"("}]})")});
  const ChildResult result = Run({"generated", "export", "a", "out", "--after", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(folder_.Read("out/step-00000003.jsonl"), "{}\n");
  const ChildResult none = Run({"generated", "export", "a", "rest", "--after", "3"});
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.err, HasSubstr("no generated files"));
  EXPECT_FALSE(std::filesystem::exists(folder_.File("rest")));
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

TEST_F(ExportCommandTest, ATeamsRunFolderNamesTheRunsOfItsPolicies) {
  folder_.Write("team/worker/job.yaml", "");
  folder_.Write("team/planner/job.yaml", "");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"ledger", "verify", "team"}, {"report", "team"}}) {
    const ChildResult result = Run(command);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_EQ(result.err, "freshet: team: is no run; name one of: team/planner, team/worker\n");
  }
}

// Uses a script in place of the Python client, which tests/clients/python covers.
class PythonClientTest : public CommandFixture {
 protected:
  PythonClientTest() {
    folder_.Write("run/metrics.jsonl", "");
    // Skips -c and the program.
    SetPython(
        "shift 2; printf %s \"$1\" >module; shift; printf '%s\\n' \"$@\" >arguments; echo written; "
        "exit 5");
    ::setenv("FRESHET_PYTHON", "./python", 1);
  }
  ~PythonClientTest() override { ::unsetenv("FRESHET_PYTHON"); }
  void SetPython(const std::string& script) {
    folder_.Write("python", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(folder_.File("python"), std::filesystem::perms::owner_all);
  }
  // Runs a command; returns the arguments of the Python client's module, one per line.
  std::string ArgumentsOf(std::vector<std::string> args, const std::string& module) {
    const ChildResult result = Run(std::move(args));
    EXPECT_EQ(result.exit_code, 5) << result.err;
    EXPECT_EQ(result.out, "written\n");
    EXPECT_EQ(folder_.Read("module"), module);
    return folder_.Read("arguments");
  }
};

using DataConvertTest = PythonClientTest;

TEST_F(DataConvertTest, HandsItsArgumentsToThePythonClient) {
  const auto arguments_of = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"data", "convert"});
    return ArgumentsOf(std::move(args), "freshet.convert");
  };
  EXPECT_EQ(arguments_of({"shards", "rows.jsonl"}), "--\nshards\nrows.jsonl\n");
  EXPECT_EQ(arguments_of({"shards", "rows.jsonl", "--columns", "a,-b c", "--prefix", "train-",
                          "--limit", "7", "--force"}),
            "--columns=a,-b c\n--prefix=train-\n--limit=7\n--force\n--\nshards\nrows.jsonl\n");
  EXPECT_EQ(Run({"data", "convert", "shards", "rows.jsonl", "--limit", "0"}).exit_code, 2);
  EXPECT_EQ(Run({"data", "convert", "shards"}).exit_code, 2);
}

class TrackerExportTest : public PythonClientTest {
 protected:
  std::string ArgumentsOf(std::vector<std::string> args) {
    args.insert(args.begin(), "export");
    return PythonClientTest::ArgumentsOf(std::move(args), "freshet.export");
  }
};

TEST_F(TrackerExportTest, HandsARunFolderToThePythonClient) {
  EXPECT_EQ(ArgumentsOf({"tensorboard", "run", "tb"}), "tensorboard\n--\nrun\ntb\n");
  EXPECT_EQ(ArgumentsOf({"wandb", "run", "--follow"}), "wandb\n--follow\n--\nrun\n");
  EXPECT_EQ(ArgumentsOf({"mlflow", "./absent; $(x)"}), "mlflow\n--\n./absent; $(x)\n");
  EXPECT_EQ(ArgumentsOf({"mlflow", "--", "--a/b"}), "mlflow\n--\n--a/b\n");
}

TEST_F(TrackerExportTest, HandsAJobOverWithItsServer) {
  const std::string server = "--server\n" + service_.address() + "\n";
  EXPECT_EQ(ArgumentsOf({"wandb", "b"}), "wandb\n" + server + "--\nb\n");
  ::setenv("FRESHET_TOKEN", "s3cret", 1);
  const std::string with_tls = ArgumentsOf({"wandb", "b", "--ca", "ca.pem", "--cert", "c.pem",
                                            "--key", "k.pem", "--token-file", "token"});
  ::unsetenv("FRESHET_TOKEN");
  EXPECT_EQ(with_tls, "wandb\n" + server +
                          "--ca\nca.pem\n--cert\nc.pem\n--key\nk.pem\n--token-file\ntoken\n"
                          "--\nb\n");
  // A token may be sent over loopback without TLS.
  EXPECT_EQ(ArgumentsOf({"wandb", "b", "--token-file", "token"}),
            "wandb\n" + server + "--token-file\ntoken\n--\nb\n");
  ::unsetenv("FRESHET_SERVER");
  EXPECT_EQ(ArgumentsOf({"wandb", "b"}), "wandb\n--\nb\n");
  folder_.Write("freshet/config.yaml", "contexts: {lab: {address: 'one:1,other:2', ca: lab.pem}}");
  EXPECT_EQ(ArgumentsOf({"wandb", "b", "--context", "lab"}),
            "wandb\n--server\none:1,other:2\n--ca\nlab.pem\n--\nb\n");
  const ChildResult unknown = Run({"export", "wandb", "b", "--context", "elsewhere"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("elsewhere"));
}

TEST_F(TrackerExportTest, SaysWhatToInstall) {
  const ChildResult no_python = Run({"export", "wandb", "run", "--python", "./absent"});
  EXPECT_EQ(no_python.exit_code, 1);
  EXPECT_THAT(no_python.err,
              AllOf(HasSubstr("./absent: cannot be started"), HasSubstr("--python")));
  // -I -S disables installed packages. A local folder with the client's name must not be used.
  SetPython("exec python3 -I -S \"$@\"");
  folder_.Write("freshet/export.py", "def main(): print('not the client')\n");
  const ChildResult no_client = Run({"export", "wandb", "run"});
  EXPECT_EQ(no_client.exit_code, 1);
  EXPECT_EQ(no_client.out, "");
  EXPECT_THAT(no_client.err,
              AllOf(HasSubstr("No module named 'freshet'"), HasSubstr("./dev python")));
}

}  // namespace
}  // namespace freshet
