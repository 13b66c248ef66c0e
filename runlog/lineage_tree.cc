#include "runlog/lineage_tree.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/digest.h"

namespace freshet {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

std::string EmptyDigest() { return Sha256Hex(""); }

}  // namespace

LineageTree::Branch* LineageTree::Find(int64_t lineage) {
  if (branches_.empty()) {
    current_ = lineage;
    Branch& root = branches_[lineage];
    root.digest = EmptyDigest();
    root.digest_after[0] = root.digest;
    return &root;
  }
  const auto found = branches_.find(lineage);
  return found == branches_.end() ? nullptr : &found->second;
}

void LineageTree::Fork(int64_t parent, int64_t lineage, std::optional<int64_t> version) {
  const Branch& from = branches_.at(parent);
  Branch child;
  child.parent = parent;
  child.fork_version = version.value_or(kUnlimited);
  child.last_version = std::min(child.fork_version, from.last_version);
  child.digest_after = from.digest_after;
  child.digest_after.erase(child.digest_after.upper_bound(child.fork_version),
                           child.digest_after.end());
  child.digest = child.digest_after.empty() ? EmptyDigest() : child.digest_after.rbegin()->second;
  branches_[lineage] = std::move(child);
  current_ = lineage;
}

void LineageTree::Diverge(int64_t lineage, int64_t version, int64_t epoch) {
  Branch child = branches_.at(current_);
  child.parent = current_;
  child.fork_version = child.last_version;
  child.diverged_from = version;
  child.epoch = epoch;
  branches_[lineage] = std::move(child);
  current_ = lineage;
}

std::string LineageTree::DigestAt(int64_t lineage, int64_t version) const {
  if (branches_.empty()) return version == 0 ? EmptyDigest() : "";
  const auto branch = branches_.find(lineage);
  if (branch == branches_.end() || version > branch->second.last_version) return "";
  const auto after = branch->second.digest_after.upper_bound(version);
  if (after == branch->second.digest_after.begin()) return "";
  return std::prev(after)->second;
}

std::optional<int64_t> LineageTree::VisibleVersion(int64_t lineage, int64_t ancestor,
                                                   bool of_weights) const {
  int64_t limit = kUnlimited;
  for (std::optional<int64_t> at = lineage; at;) {
    if (*at == ancestor) return limit;
    const auto branch = branches_.find(*at);
    if (branch == branches_.end()) return std::nullopt;
    const int64_t fork = branch->second.fork_version;
    limit = std::min(limit, of_weights ? branch->second.diverged_from.value_or(fork) : fork);
    at = branch->second.parent;
  }
  return std::nullopt;
}

bool LineageTree::Survives(int64_t lineage, int64_t train_version) const {
  const std::optional<int64_t> limit = VisibleVersion(current_, lineage);
  return limit && train_version < *limit;
}

bool LineageTree::ComesFrom(int64_t lineage, int64_t version) const {
  for (int64_t at = current_; at != lineage;) {
    const auto branch = branches_.find(at);
    if (branch == branches_.end() || !branch->second.diverged_from ||
        version > *branch->second.diverged_from) {
      return false;
    }
    at = *branch->second.parent;
  }
  return true;
}

}  // namespace freshet
