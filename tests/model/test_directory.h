#ifndef FRESHET_TESTS_MODEL_TEST_DIRECTORY_H_
#define FRESHET_TESTS_MODEL_TEST_DIRECTORY_H_

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace freshet {

// A fresh directory that is removed with its contents on destruction.
class TestDirectory {
 public:
  TestDirectory() {
    std::string name = ::testing::TempDir() + "/freshet_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Returns the path of the new file.
  std::string Write(const std::string& name, std::string_view content) const {
    std::ofstream(File(name), std::ios::binary) << content;
    return File(name);
  }
  bool Has(const std::string& name) const { return std::filesystem::exists(File(name)); }

 private:
  std::string path_;
};

// Path of reference data next to the source tree, which most machines do not have.
inline std::string ReferencePath(const std::string& name) {
  return std::string(FRESHET_SOURCE_DIR) + "/../shared/data/" + name;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_MODEL_TEST_DIRECTORY_H_
