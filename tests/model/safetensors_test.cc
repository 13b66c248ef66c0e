#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A file with this header and data; `length` can be inconsistent.
std::string FileBytes(const std::string& header, const std::string& data, uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  return bytes + header + data;
}
std::string FileBytes(const std::string& header, const std::string& data) {
  return FileBytes(header, data, header.size());
}

std::string OpenError(const std::string& bytes) {
  const TestDirectory dir;
  const std::string path = dir.Write("m.safetensors", bytes);
  const auto file = SafetensorsFile::Open(path);
  if (file.ok()) return "no error";
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message = Message(file.status());
  EXPECT_THAT(message, StartsWith(path + ": "));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message.substr(path.size() + 2);
}

std::string TensorError(const std::string& tensor, const std::string& data = "1234") {
  return OpenError(FileBytes("{\"t\": " + tensor + "}", data));
}

TEST(Safetensors, ReadsWhatItWrote) {
  const TestDirectory dir;
  const std::vector<float> floats = {1.5F, -2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  const uint8_t byte = 7;
  const int64_t number = -9;
  const std::string path = dir.File("m.safetensors");
  const std::vector<TensorToWrite> tensors = {
      {"byte \"\u00e9\"", Dtype::kU8, {1}, &byte, 1},
      {"floats", Dtype::kF32, {2, 3}, floats.data(), 24},
      {"empty", Dtype::kBf16, {0, 5}, nullptr, 0},
      {"scalar", Dtype::kI64, {}, &number, 8},
  };
  ASSERT_TRUE(WriteSafetensors(path, tensors, {{"format", "pt"}}).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT((*file)->names(), ElementsAre("byte \"\u00e9\"", "empty", "floats", "scalar"));
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  const TensorInfo* info = (*file)->Find("floats");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->dtype, Dtype::kF32);
  EXPECT_THAT(info->shape, ElementsAre(2, 3));
  EXPECT_EQ((*file)->Data(*info),
            std::string_view(reinterpret_cast<const char*>(floats.data()), 24));
  EXPECT_EQ((*file)->Data(*(*file)->Find("byte \"\u00e9\"")), "\x07");
  EXPECT_EQ((*file)->Data(*(*file)->Find("empty")), "");
  EXPECT_EQ((*file)->Find("none"), nullptr);
}

TEST(Safetensors, RoundsToBf16WhileItWrites) {
  const TestDirectory dir;
  const std::string path = dir.File("m.safetensors");
  std::vector<float> floats((1 << 18) + 3);  // more than is rounded at a time
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = 1.0F / static_cast<float>(i + 1);
  const auto count = static_cast<int64_t>(floats.size());
  const uint64_t bytes = floats.size() * sizeof(float);
  ASSERT_TRUE(WriteSafetensors(path, {{"bf16", Dtype::kF32, {count}, floats.data(), bytes, true},
                                      {"fp32", Dtype::kF32, {count}, floats.data(), bytes}})
                  .ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Find("bf16")->dtype, Dtype::kBf16);
  std::vector<uint16_t> want(floats.size());
  std::transform(floats.begin(), floats.end(), want.begin(), RoundToBf16);
  EXPECT_TRUE((*file)->Data(*(*file)->Find("bf16")) ==
              std::string_view(reinterpret_cast<const char*>(want.data()), bytes / 2));
  EXPECT_TRUE((*file)->Data(*(*file)->Find("fp32")) ==
              std::string_view(reinterpret_cast<const char*>(floats.data()), bytes));
}

TEST(Safetensors, AlignsHeaderAndTensors) {
  const TestDirectory dir;
  const std::string data(64, 'x');
  const std::string path = dir.File("m.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, {{"b", Dtype::kU8, {3}, data.data(), 3},
                                      {"h", Dtype::kBf16, {3}, data.data(), 6},
                                      {"d", Dtype::kF64, {2}, data.data(), 16},
                                      {"f", Dtype::kF32, {3}, data.data(), 12}})
                  .ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  for (const std::string& name : (*file)->names()) {
    const TensorInfo& info = *(*file)->Find(name);
    const auto address = reinterpret_cast<uintptr_t>((*file)->Data(info).data());
    EXPECT_EQ(address % DtypeBytes(info.dtype), 0U) << name;
  }
}

TEST(Safetensors, WritesAFileWithoutTensors) {
  const TestDirectory dir;
  ASSERT_TRUE(WriteSafetensors(dir.File("m"), {}).ok());
  const auto file = SafetensorsFile::Open(dir.File("m"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->names().empty());
}

TEST(Safetensors, RefusesToWriteWrongSizesAndNames) {
  const TestDirectory dir;
  const float value = 1;
  const auto error = [&](const std::vector<TensorToWrite>& tensors) {
    const absl::Status status = WriteSafetensors(dir.File("m"), tensors);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  EXPECT_THAT(error({{"t", Dtype::kF32, {2}, &value, 4}}),
              HasSubstr("tensor \"t\" has 4 bytes, which is not F32 [2]"));
  EXPECT_THAT(error({{"t", Dtype::kF32, {1}, &value, 4}, {"t", Dtype::kF32, {1}, &value, 4}}),
              HasSubstr("reserved or used twice"));
  EXPECT_THAT(error({{"__metadata__", Dtype::kF32, {1}, &value, 4}}), HasSubstr("reserved"));
  EXPECT_THAT(error({{"t", Dtype::kF16, {2}, &value, 4, true}}),
              HasSubstr("tensor \"t\" is F16: only F32 is rounded to BF16"));
  EXPECT_THAT(error({{"\xFF", Dtype::kF32, {1}, &value, 4}}), HasSubstr("not UTF-8"));
  EXPECT_FALSE(dir.Has("m"));
}

TEST(Safetensors, SaysThatTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const TestDirectory dir;
  std::filesystem::create_symlink("/dev/full", dir.File("m"));
  const float value = 1;
  const absl::Status status = WriteSafetensors(dir.File("m"), {{"t", Dtype::kF32, {1}, &value, 4}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("No space left"));
}

TEST(Safetensors, SaysThatTheDirectoryIsMissing) {
  const TestDirectory dir;
  EXPECT_EQ(WriteSafetensors(dir.File("none/m"), {}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Safetensors, NamesAMissingFileAndADirectory) {
  const TestDirectory dir;
  EXPECT_EQ(SafetensorsFile::Open(dir.File("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(dir.path()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Safetensors, NamesTheSizesOfATruncatedFile) {
  const std::string header = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string whole = FileBytes(header, "12345678");
  EXPECT_EQ(OpenError(whole), "no error");
  EXPECT_EQ(
      OpenError(whole.substr(0, whole.size() - 1)),
      StrCat("is truncated: ", whole.size() - 1, " bytes, but its header needs ", whole.size()));
  EXPECT_EQ(OpenError(whole.substr(0, 20)),
            StrCat("is truncated: 20 bytes, but the header alone needs ", 8 + header.size()));
  EXPECT_EQ(OpenError(whole.substr(0, 7)), "is truncated: 7 bytes, want at least 8");
  EXPECT_EQ(OpenError(""), "is truncated: 0 bytes, want at least 8");
}

TEST(Safetensors, RefusesEveryCutOfAFile) {
  const std::string whole =
      FileBytes(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(OpenError(whole.substr(0, size)), "no error") << size;
  }
}

TEST(Safetensors, RefusesABadHeaderLength) {
  EXPECT_THAT(OpenError(FileBytes("{}", "", ~uint64_t{0})), HasSubstr("not a safetensors file"));
  EXPECT_THAT(OpenError(FileBytes("{}", "", (100U << 20) + 1)),
              HasSubstr("header of 104857601 bytes, want at most 104857600"));
  EXPECT_THAT(OpenError(FileBytes("", "")), HasSubstr("the file is empty"));
}

TEST(Safetensors, RefusesABrokenHeader) {
  EXPECT_THAT(OpenError(FileBytes("{\"a\":", "")), HasSubstr("parse error"));
  EXPECT_THAT(OpenError(FileBytes("[]", "")), HasSubstr("header is an array, want an object"));
  EXPECT_THAT(OpenError(FileBytes(std::string(100'000, '['), "")), HasSubstr("nested deeper"));
  EXPECT_THAT(OpenError(FileBytes(R"({"__metadata__": {"a": 1}})", "")),
              HasSubstr("__metadata__ \"a\" is not a string"));
  const std::string tensor = R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(OpenError(FileBytes("{" + tensor + "," + tensor + "}", "1")),
              HasSubstr("the name 't' occurs twice"));
}

TEST(Safetensors, RefusesABadTensor) {
  struct Case {
    const char* tensor;
    const char* message;
  };
  const Case cases[] = {
      {"7", "tensor \"t\": is 7, want an object"},
      {R"({"shape":[1],"data_offsets":[0,4]})", "has no dtype"},
      {R"({"dtype":"F32","data_offsets":[0,4]})", "has no shape"},
      {R"({"dtype":"F32","shape":[1]})", "has no data_offsets"},
      {R"({"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]})",
       "dtype \"F8_E4M3\" is not supported"},
      {R"({"dtype":4,"shape":[4],"data_offsets":[0,4]})", "dtype 4 is not supported"},
      {R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})", "shape is 1, want a list"},
      {R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", "shape holds -1, want sizes"},
      {R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", "shape holds 1.0, want sizes"},
      {R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})",
       "shape has 17 dimensions"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})",
       "spans bytes 0 to 4, but F32 [2] needs 8"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", "spans bytes 4 to 0"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", "want two offsets"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})", "want two offsets"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})", "is too large"},
      {R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})", "is too large"},
      {R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]})",
       "shape holds 18446744073709551615"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]})",
       "spans bytes 18446744073709551612"},
  };
  for (const Case& c : cases) EXPECT_THAT(TensorError(c.tensor), HasSubstr(c.message)) << c.tensor;
}

TEST(Safetensors, RefusesOverlapGapAndRest) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(OpenError(FileBytes(two("[0,2]", "[2,4]"), "1234")), "no error");
  EXPECT_EQ(OpenError(FileBytes(two("[2,4]", "[0,2]"), "1234")), "no error");
  EXPECT_THAT(OpenError(FileBytes(two("[0,2]", "[1,3]"), "123")),
              HasSubstr("tensor \"b\" starts at byte 1, inside of another one that ends at 2"));
  EXPECT_THAT(OpenError(FileBytes(two("[0,2]", "[0,2]"), "12")), HasSubstr("inside of another"));
  EXPECT_THAT(OpenError(FileBytes(two("[0,2]", "[3,5]"), "12345")),
              HasSubstr("tensor \"b\" starts at byte 3, leaving a gap after byte 2"));
  EXPECT_THAT(OpenError(FileBytes(two("[1,3]", "[3,5]"), "12345")), HasSubstr("leaving a gap"));
  EXPECT_THAT(OpenError(FileBytes(two("[0,2]", "[2,4]"), "12345")),
              HasSubstr("has 1 bytes after the last tensor"));
}

TEST(Safetensors, AcceptsAnEmptyTensorBetweenOthers) {
  EXPECT_EQ(OpenError(FileBytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                R"("z":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},)"
                                R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                                "1234")),
            "no error");
}

TEST(TensorBytes, MultipliesWithoutOverflow) {
  EXPECT_EQ(*TensorBytes(Dtype::kF32, {}), 4U);
  EXPECT_EQ(*TensorBytes(Dtype::kF64, {3, 5}), 120U);
  EXPECT_EQ(*TensorBytes(Dtype::kU8, {int64_t{1} << 62, 0, int64_t{1} << 62}), 0U);
  EXPECT_FALSE(TensorBytes(Dtype::kU8, {int64_t{1} << 62, 2}).ok());
  EXPECT_FALSE(TensorBytes(Dtype::kU8, {-1}).ok());
  EXPECT_FALSE(TensorBytes(Dtype::kU8, {0, -1}).ok());
}

}  // namespace
}  // namespace freshet
