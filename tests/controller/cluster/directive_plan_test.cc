#include "controller/cluster/directive_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

std::shared_ptr<const cluster::v1::Members> MemberList(int64_t revision) {
  auto members = std::make_shared<cluster::v1::Members>();
  members->set_revision(revision);
  return members;
}

DesiredAssignment Wish(const std::string& id, bool paused = false, int64_t revision = 1) {
  auto assign = std::make_shared<cluster::v1::Assign>();
  assign->set_job_id("job");
  return {id, "worker", 1, assign, paused, MemberList(revision)};
}

std::string Say(DirectivePlan& plan, const std::vector<DesiredAssignment>& desired) {
  std::string said;
  while (const auto directive = plan.Next(desired)) {
    if (directive->has_assign()) {
      said += "assign " + directive->assign().assignment_id() +
              (directive->assign().paused() ? " paused" : "") + "; ";
    } else if (directive->has_unassign()) {
      said += "unassign " + directive->unassign().assignment_id() + "; ";
    } else if (directive->has_pause()) {
      said += std::string(directive->pause().paused() ? "pause " : "resume ") +
              directive->pause().assignment_id() + "; ";
    } else if (directive->has_members()) {
      said += "members " + directive->members().assignment_id() + "@" +
              std::to_string(directive->members().revision()) + "; ";
    }
  }
  return said;
}

TEST(DirectivePlan, ANewWorkerIsAssignedOnce) {
  DirectivePlan plan({});
  EXPECT_EQ(Say(plan, {Wish("a")}), "assign a; ");
  EXPECT_EQ(Say(plan, {Wish("a")}), "");
}

TEST(DirectivePlan, OnlyDifferencesAreSaid) {
  DirectivePlan plan({});
  Say(plan, {Wish("a")});
  EXPECT_EQ(Say(plan, {Wish("a", true)}), "pause a; ");
  EXPECT_EQ(Say(plan, {Wish("a", false)}), "resume a; ");
  EXPECT_EQ(Say(plan, {Wish("a", false, 2)}), "members a@2; ");
  EXPECT_EQ(Say(plan, {}), "unassign a; ");
  EXPECT_EQ(Say(plan, {}), "");
}

TEST(DirectivePlan, TheFormerWorkEndsBeforeTheNextBegins) {
  DirectivePlan plan({});
  Say(plan, {Wish("a")});
  EXPECT_EQ(Say(plan, {Wish("b")}), "unassign a; assign b; ");
}

TEST(DirectivePlan, WhatAWorkerDoesAlreadyIsConfirmedAndNotBegunAgain) {
  DirectivePlan plan({"a"});
  EXPECT_EQ(Say(plan, {Wish("a", false, 7)}), "members a@7; resume a; ");
}

TEST(DirectivePlan, WorkThatNobodyWantsIsEnded) {
  DirectivePlan plan({"old"});
  EXPECT_EQ(Say(plan, {Wish("new")}), "unassign old; assign new; ");
}

TEST(DirectivePlan, WorkWhoseContentIsNotAtHandYetIsLeftAlone) {
  DirectivePlan plan({"a"});
  DesiredAssignment reserved = Wish("a");
  reserved.assign = nullptr;
  reserved.members = nullptr;
  DesiredAssignment reserved_for_new = reserved;
  reserved_for_new.id = "b";
  EXPECT_EQ(Say(plan, {reserved, reserved_for_new}), "");
  EXPECT_EQ(Say(plan, {Wish("a"), Wish("b")}), "members a@1; resume a; assign b; ");
}

}  // namespace
}  // namespace freshet
