#ifndef FRESHET_TRAINER_LOOP_GENERATED_FILES_H_
#define FRESHET_TRAINER_LOOP_GENERATED_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "datastore/trajectory_store.h"
#include "runlog/generated_row.h"

namespace freshet {

// The sample as a row. `decode` turns tokens into text.
GeneratedRow MakeGeneratedRow(int64_t step, const TrainSample& sample,
                              const std::function<std::string(const std::vector<int32_t>&)>& decode,
                              bool with_ids);

// The files of a job of kind generate: FOLDER/step-00000012.jsonl has the samples of step 12, one a
// line (runlog/generated_row.h). A file depends only on the groups of its step, so a step that is
// redone gives the same file. Confined to one thread at a time.
class GeneratedFiles {
 public:
  struct Options {
    std::string folder;  // made with the first file
    std::function<std::string(const std::vector<int32_t>&)> decode;
    bool with_ids = false;
  };
  explicit GeneratedFiles(Options options) : options_(std::move(options)) {}

  // The folder of a run whose checkpoints are in `checkpoint_root`.
  static std::string FolderOfRun(const std::string& checkpoint_root);

  // Paths of the files of steps after `step`, in the order of the steps, at most `most`. Empty:
  // there are none.
  static std::vector<std::string> FilesAfter(const std::string& folder, int64_t step, size_t most);

  // Removes the files of steps after `step`, whose samples are not part of the history, and what
  // killed processes left unfinished. FAILED_PRECONDITION: a file cannot be removed.
  absl::Status RemoveAfter(int64_t step) const;

  // Atomically creates or replaces the file of a committed step. Errors of WriteFileAtomically.
  absl::Status Write(int64_t step, const std::vector<TrainGroup>& groups) const;

 private:
  const Options options_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOOP_GENERATED_FILES_H_
