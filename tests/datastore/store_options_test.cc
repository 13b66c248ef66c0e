#include <functional>
#include <string>

#include "base/str_cat.h"
#include "datastore/trajectory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

StoreOptions Valid() {
  StoreOptions options;
  options.job = "job";
  options.staleness = {1, Disposition::kWait, 4, 16};
  options.group_size = 8;
  options.last_step = 10;
  options.capacity_groups = 8;
  options.max_queued_prompts = 4;
  return options;
}

TEST(StoreOptions, ValidOnesPass) { EXPECT_TRUE(Valid().Validate().ok()); }

TEST(StoreOptions, ValidateNamesTheOptionAndTheBound) {
  struct Case {
    const char* message;
    std::function<void(StoreOptions&)> spoil;
  };
  const Case cases[] = {
      {"job: ''", [](StoreOptions& o) { o.job = ""; }},
      {"job: 'a/b'", [](StoreOptions& o) { o.job = "a/b"; }},
      {"staleness.max: -1", [](StoreOptions& o) { o.staleness.max = -1; }},
      {"group_size: 0", [](StoreOptions& o) { o.group_size = 0; }},
      {"last_step: 0", [](StoreOptions& o) { o.last_step = 0; }},
      {"max_queued_prompts: 0", [](StoreOptions& o) { o.max_queued_prompts = 0; }},
      {"max_row_failures: 0", [](StoreOptions& o) { o.max_row_failures = 0; }},
      {"max_lease_failures: 0", [](StoreOptions& o) { o.max_lease_failures = 0; }},
      {"max_hand_backs: 0", [](StoreOptions& o) { o.max_hand_backs = 0; }},
      {"max_requeues: -1", [](StoreOptions& o) { o.max_requeues = -1; }},
      {"max_filtered_in_a_row: -1", [](StoreOptions& o) { o.max_filtered_in_a_row = -1; }},
      {"filter_zero_variance: group_size 1",
       [](StoreOptions& o) {
         o.filter.zero_variance = true;
         o.group_size = 1;
       }},
      {"filter.min_mean: 0.5",
       [](StoreOptions& o) {
         o.filter.min_mean = 0.5;
         o.filter.max_mean = 0.25;
       }},
      {"replay.max_age: 1",
       [](StoreOptions& o) {
         o.replay = ReplayOptions{1, 1.0, 8, 1};
       }},
      {"replay.capacity: 0",
       [](StoreOptions& o) {
         o.replay = ReplayOptions{2, 1.0, 0, 1};
       }},
      {"staleness.max (with replay): 0",
       [](StoreOptions& o) {
         o.staleness.max = 0;
         o.replay = ReplayOptions{2, 1.0, 8, 1};
       }},
      {"group_size (with replay): 1",
       [](StoreOptions& o) {
         o.group_size = 1;
         o.replay = ReplayOptions{2, 1.0, 8, 1};
       }},
      {"replay: score_whole_groups",
       [](StoreOptions& o) {
         o.score_whole_groups = true;
         o.replay = ReplayOptions{2, 1.0, 8, 1};
       }},
      {"lease_ttl: 0", [](StoreOptions& o) { o.lease_ttl = absl::ZeroDuration(); }},
      {"capacity_groups: 7", [](StoreOptions& o) { o.capacity_groups = 7; }},
  };
  for (const Case& c : cases) {
    StoreOptions options = Valid();
    c.spoil(options);
    const absl::Status status = options.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(Message(status), HasSubstr(c.message));
  }
}

TEST(SampleUid, JoinsItsParts) { EXPECT_EQ(SampleUid("a", {12, 3, 4}), "a/12/3/4"); }

TEST(GroupState, EveryStateHasAName) {
  EXPECT_STREQ(Name(GroupState::kQueued), "queued");
  EXPECT_STREQ(Name(GroupState::kDead), "dead");
}

}  // namespace
}  // namespace freshet
