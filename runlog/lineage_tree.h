#ifndef FRESHET_RUNLOG_LINEAGE_TREE_H_
#define FRESHET_RUNLOG_LINEAGE_TREE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace freshet {

// The lineages of a ledger: what each inherited, and what it reached. Thread-compatible.
class LineageTree {
 public:
  struct Branch {
    std::optional<int64_t> parent;
    int64_t fork_version = 0;  // later versions are not inherited
    // Set if a redo created the lineage: what it inherits stays trained and trainable up to
    // fork_version, but its weights descend from versions up to this one.
    std::optional<int64_t> diverged_from;
    int64_t epoch = 0;                            // of that redo
    int64_t last_version = 0;                     // highest version reached
    std::string digest;                           // over the trained uids so far
    std::map<int64_t, std::string> digest_after;  // by version reached
  };

  // The branch of a lineage; the first lineage asked for becomes the root. Null if no call below
  // began the lineage.
  Branch* Find(int64_t lineage);

  // Each begins `lineage`, which becomes the current one. Fork: it inherits from `parent` up to
  // `version`, or everything. Diverge: a redo in `epoch` of the steps of the current lineage after
  // `version` begins it. Both require the lineage that they inherit from.
  void Fork(int64_t parent, int64_t lineage, std::optional<int64_t> version);
  void Diverge(int64_t lineage, int64_t version, int64_t epoch);

  bool empty() const { return branches_.empty(); }
  // The lineage of the surviving history; 0 while there is none.
  int64_t current() const { return current_; }
  // The highest lineage. Requires one.
  int64_t newest() const { return branches_.rbegin()->first; }

  // Digest over the trained uids of a checkpoint of (lineage, version); empty if the lineage never
  // reached the version.
  std::string DigestAt(int64_t lineage, int64_t version) const;
  // Highest version of `ancestor` in the history of `lineage` or, with `of_weights`, from which its
  // weights descend; nullopt if `ancestor` is not one.
  std::optional<int64_t> VisibleVersion(int64_t lineage, int64_t ancestor,
                                        bool of_weights = false) const;
  // Whether what `lineage` trained at `train_version` is in the surviving history.
  bool Survives(int64_t lineage, int64_t train_version) const;
  // Whether the current lineage is `lineage`, or descends from this version through redos alone.
  bool ComesFrom(int64_t lineage, int64_t version) const;

 private:
  int64_t current_ = 0;
  std::map<int64_t, Branch> branches_;
};

}  // namespace freshet

#endif  // FRESHET_RUNLOG_LINEAGE_TREE_H_
