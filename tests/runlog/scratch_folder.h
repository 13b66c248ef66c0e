#ifndef FRESHET_TESTS_RUNLOG_SCRATCH_FOLDER_H_
#define FRESHET_TESTS_RUNLOG_SCRATCH_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace freshet {

// A temporary folder that is removed on destruction.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = std::filesystem::temp_directory_path().string() + "/runfolder_XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }
  void Write(std::string_view name, std::string_view contents) const {
    const std::filesystem::path file = File(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << contents;
  }
  std::string Read(std::string_view name) const {
    std::ostringstream contents;
    contents << std::ifstream(File(name), std::ios::binary).rdbuf();
    return contents.str();
  }

 private:
  std::string path_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_RUNLOG_SCRATCH_FOLDER_H_
