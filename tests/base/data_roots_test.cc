#include "base/data_roots.h"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kNoSizeLimit = uint64_t{1} << 40;

// A folder "root" with one file, next to a file that jobs must not read.
class DataRootsTest : public testing::Test {
 protected:
  DataRootsTest() {
    fs::create_directories(folder_.File("root/sub"));
    folder_.Write("secret", "secret");
    folder_.Write("root/rows", "rows");
  }
  static DataRoots Below(const std::vector<std::string>& folders) {
    auto roots = DataRoots::Create(folders);
    EXPECT_TRUE(roots.ok()) << roots.status();
    return *roots;
  }
  // Returns the contents of `path`, relative to the test's folder, or the error.
  std::string Read(const DataRoots& roots, const std::string& path) const {
    const auto text = roots.ReadFile(folder_.File(path), kNoSizeLimit);
    return text.ok() ? *text
                     : StrCat(absl::StatusCodeToString(text.status().code()), " ",
                              Message(text.status()));
  }
  std::string Read(const std::string& path) const {
    return Read(Below({folder_.File("root")}), path);
  }
  void Link(const std::string& target, const std::string& name) const {
    fs::create_symlink(target, folder_.File(name));
  }

  const TestDirectory folder_;
};

TEST_F(DataRootsTest, OpensWhatIsInside) {
  EXPECT_EQ(Read("root/rows"), "rows");
  EXPECT_EQ(Read("root/sub/../rows"), "rows");
  EXPECT_EQ(Read("root//./rows"), "rows");
}

TEST_F(DataRootsTest, RefusesWhatIsOutsideAndNamesTheFlag) {
  const auto refused = AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("--data-root "),
                             HasSubstr(fs::path(folder_.File("root")).lexically_normal()),
                             HasSubstr("`freshet cluster up`) with --data-root FOLDER"));
  EXPECT_THAT(Read("secret"), refused);
  EXPECT_THAT(Read("root/../secret"), refused);
  EXPECT_THAT(Read("root/sub/../../secret"), refused);
  EXPECT_THAT(Read("root/../root/rows"), refused) << "out and in again";
  EXPECT_THAT(Read("root-not/rows"), refused) << "a name that begins alike";
  EXPECT_THAT(Read("absent"), refused) << "tells nothing of what is outside";
}

TEST_F(DataRootsTest, FollowsLinksThatStayInside) {
  Link("../rows", "root/sub/link");
  EXPECT_EQ(Read("root/sub/link"), "rows");
}

TEST_F(DataRootsTest, RefusesLinksThatLeadOutside) {
  Link("../secret", "root/relative");
  Link(folder_.File("secret"), "root/absolute");
  Link("..", "root/up");
  Link("/proc/self/root", "root/proc");
  for (const char* path : {"root/relative", "root/absolute", "root/up/secret", "root/proc"}) {
    EXPECT_THAT(Read(path), HasSubstr("INVALID_ARGUMENT")) << path;
  }
}

TEST_F(DataRootsTest, AMagicLinkIsNoWayOut) {
  const UniqueFd secret(::open(folder_.File("secret").c_str(), O_RDONLY));
  const auto text = Below({"/proc"}).ReadFile(StrCat("/proc/self/fd/", secret.get()), kNoSizeLimit);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << text.status();
}

TEST_F(DataRootsTest, TheFolderItselfMayBeALink) {
  Link("root", "link");
  const DataRoots roots = Below({folder_.File("link")});
  EXPECT_EQ(Read(roots, "link/rows"), "rows");
  EXPECT_EQ(Read(roots, "root/rows"), "rows") << "by its own name";
  EXPECT_THAT(Read(roots, "link/../secret"), HasSubstr("INVALID_ARGUMENT"));
}

TEST_F(DataRootsTest, TakesSeveralFoldersAndTheirSpellings) {
  const DataRoots roots = Below({folder_.File("none"), folder_.File("root/sub/../")});
  EXPECT_EQ(Read(roots, "root/rows"), "rows");
  EXPECT_THAT(Read(roots, "none/x"), AllOf(HasSubstr("NOT_FOUND"), HasSubstr("--data-root")));
  EXPECT_EQ(*Below({"/"}).ReadFile(folder_.File("secret"), kNoSizeLimit), "secret");
  EXPECT_FALSE(DataRoots::Create({""}).ok());
}

TEST_F(DataRootsTest, RelativePathsBelongToTheCurrentFolder) {
  const fs::path relative = fs::relative(folder_.File("root"));
  const DataRoots roots = Below({relative.string()});
  EXPECT_EQ(Read(roots, "root/rows"), "rows");
  const DataRoots here = Below({fs::current_path().string()});
  EXPECT_EQ(here.ReadFile("no-such-file", kNoSizeLimit).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(DataRootsTest, WithoutAFolderEveryPathIsRefused) {
  EXPECT_THAT(Read(DataRoots(), "root/rows"),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("--data-root")));
  EXPECT_EQ(Read(DataRoots::Unlimited(), "secret"), "secret");
}

TEST_F(DataRootsTest, NamesWhatIsMissing) {
  EXPECT_THAT(Read("root/absent"), AllOf(HasSubstr("NOT_FOUND"), HasSubstr("root/absent")));
  EXPECT_THAT(Read("root/sub"), HasSubstr("not a regular file"));
  const DataRoots roots = Below({folder_.File("root")});
  EXPECT_TRUE(roots.Exists(folder_.File("root/rows")));
  EXPECT_FALSE(roots.Exists(folder_.File("root/absent")));
}

// openat2 is missing: ENOSYS from an old kernel, EPERM from a seccomp sandbox.
TEST_F(DataRootsTest, AKernelOrASandboxWithoutOpenat2OpensNothing) {
  for (const auto open : {+[](int, const char*, int) {
                            errno = ENOSYS;
                            return -1;
                          },
                          +[](int, const char*, int) {
                            errno = EPERM;
                            return -1;
                          }}) {
    const auto roots = DataRoots::Create({folder_.File("root")}, open);
    EXPECT_THAT(Read(*roots, "root/rows"),
                AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("openat2")));
    EXPECT_TRUE(roots->Exists(folder_.File("root/rows")));
  }
}

TEST_F(DataRootsTest, WhatCannotBeOpenedIsThereAllTheSame) {
  const auto roots = DataRoots::Create({folder_.File("root")}, [](int, const char*, int) {
    errno = EACCES;
    return -1;
  });
  EXPECT_THAT(Read(*roots, "root/rows"), HasSubstr("NOT_FOUND"));
  EXPECT_TRUE(roots->Exists(folder_.File("root/rows")));
  EXPECT_FALSE(Below({folder_.File("root")}).Exists(folder_.File("root/rows/x"))) << "a file";
  EXPECT_TRUE(DataRoots::Unlimited().Exists(folder_.File("root/rows")));
  EXPECT_FALSE(DataRoots::Unlimited().Exists(folder_.File("root/absent")));
}

}  // namespace
}  // namespace freshet
