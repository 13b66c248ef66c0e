#include "cli/machine/doctor.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

MachineFacts Good() {
  MachineFacts facts;
  facts.cpu_flags = {"avx2", "avx512f", "amx_bf16"};
  facts.cores = 8;
  facts.memory_available_bytes = int64_t{16} << 30;
  facts.state_disk_bytes = int64_t{50} << 30;
  facts.state_folder = "/state";
  facts.redis_path = "/usr/bin/redis-server";
  facts.redis_version = "7.0.15";
  facts.port = 7070;
  facts.port_free = true;
  facts.server = "127.0.0.1:7070";
  facts.server_reached = true;
  return facts;
}

Finding Of(const MachineFacts& facts, const std::string& subject) {
  for (const Finding& finding : Diagnose(facts)) {
    if (finding.subject == subject) return finding;
  }
  return {Finding::Grade::kGood, "none", ""};
}

TEST(Doctor, FindsNothingOnAGoodMachine) {
  for (const Finding& finding : Diagnose(Good())) {
    EXPECT_EQ(finding.grade, Finding::Grade::kGood) << finding.text;
  }
  EXPECT_THAT(FormatFindings(Diagnose(Good()), false), HasSubstr("no error, 0 warnings\n"));
}

TEST(Doctor, FaultsNameTheFix) {
  MachineFacts facts = Good();
  facts.redis_path = "";
  facts.missing_binaries = {"freshet-trainer"};
  facts.state_disk_bytes = 1000;
  facts.cpu_flags = {};
  for (const char* subject : {"redis", "binaries", "disk", "cpu"}) {
    const Finding finding = Of(facts, subject);
    EXPECT_EQ(finding.grade, Finding::Grade::kError) << subject;
    EXPECT_THAT(finding.text, HasSubstr(";")) << subject;
  }
  EXPECT_THAT(FormatFindings(Diagnose(facts), false),
              AllOf(HasSubstr("apt install redis-server"), HasSubstr("4 errors, 0 warnings\n")));
}

TEST(Doctor, WarnsWhereItOnlyGetsWorse) {
  MachineFacts facts = Good();
  facts.server_reached = false;
  facts.server_error = "refused";
  facts.port_free = false;
  facts.memory_available_bytes = 1 << 30;
  facts.memory_file_error = "memfd_create: Operation not permitted";
  facts.cores = 1;
  for (const char* subject : {"server", "ports", "memory", "memfd", "cpu"}) {
    EXPECT_EQ(Of(facts, subject).grade, Finding::Grade::kWarning) << subject;
  }
}

TEST(Doctor, OldRedisIsAFault) {
  MachineFacts facts = Good();
  facts.redis_version = "6.2.1";
  EXPECT_EQ(Of(facts, "redis").grade, Finding::Grade::kError);
}

TEST(Doctor, ListsWhatIsWrongWithAModel) {
  MachineFacts facts = Good();
  facts.model_path = "/m";
  facts.model_text = "2 layers";
  EXPECT_EQ(Of(facts, "model").text, "/m: 2 layers");
  facts.model_errors = {"/m/config.json: missing"};
  EXPECT_EQ(Of(facts, "model").grade, Finding::Grade::kError);
}

}  // namespace
}  // namespace freshet
