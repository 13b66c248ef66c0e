#include "controller/cluster/directive_plan.h"

#include <algorithm>

namespace freshet {
namespace {

int64_t RevisionOf(const DesiredAssignment& wish) {
  return wish.members == nullptr ? -1 : wish.members->revision();
}

cluster::v1::Members MembersOf(const DesiredAssignment& wish) {
  cluster::v1::Members members = *wish.members;
  members.set_assignment_id(wish.id);
  return members;
}

cluster::v1::Directive AssignDirective(const DesiredAssignment& wish) {
  cluster::v1::Directive directive;
  cluster::v1::Assign* assign = directive.mutable_assign();
  *assign = *wish.assign;
  assign->set_assignment_id(wish.id);
  assign->set_paused(wish.paused);
  if (wish.members != nullptr) *assign->mutable_members() = MembersOf(wish);
  return directive;
}

}  // namespace

DirectivePlan::DirectivePlan(const std::vector<std::string>& working_on) {
  for (const std::string& id : working_on) told_[id] = Told{};
}

std::optional<cluster::v1::Directive> DirectivePlan::Next(
    const std::vector<DesiredAssignment>& desired) {
  cluster::v1::Directive directive;
  for (const auto& [id, told] : told_) {
    const bool wanted = std::any_of(desired.begin(), desired.end(),
                                    [&id = id](const auto& wish) { return wish.id == id; });
    if (wanted) continue;
    directive.mutable_unassign()->set_assignment_id(id);
    directive.mutable_unassign()->set_reason("the work is over, or another worker has it");
    told_.erase(id);
    return directive;
  }
  for (const DesiredAssignment& wish : desired) {
    if (wish.assign == nullptr) continue;
    const auto found = told_.find(wish.id);
    if (found == told_.end()) {
      told_[wish.id] = Told{wish.paused, RevisionOf(wish)};
      return AssignDirective(wish);
    }
    Told& told = found->second;
    if (told.members_revision != RevisionOf(wish) && wish.members != nullptr) {
      told.members_revision = RevisionOf(wish);
      *directive.mutable_members() = MembersOf(wish);
      return directive;
    }
    if (told.paused != wish.paused) {
      told.paused = wish.paused;
      directive.mutable_pause()->set_assignment_id(wish.id);
      directive.mutable_pause()->set_paused(wish.paused);
      return directive;
    }
  }
  return std::nullopt;
}

}  // namespace freshet
