#include "services/runtime/user_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/str_cat.h"

namespace freshet::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Entry(const std::string& name, const std::string& role, const std::string& hash) {
  return StrCat(R"({"name": ")", name, R"(", "role": ")", role, R"(", "token_sha256": ")", hash,
                R"("})");
}
std::string List(const std::string& entries) { return StrCat(R"({"users": [)", entries, "]}"); }

const std::string& Hash() {
  static const auto* const hash = new std::string(Sha256Hex("t"));
  return *hash;
}

TEST(UserList, FindsUsersByTheirToken) {
  std::string upper = Sha256Hex("two");
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto list = ParseUserList(List(Entry("ann", "viewer", Sha256Hex("one")) + "," +
                                       Entry("b.ob@x", "admin", upper) + "," +
                                       Entry("ann", "submitter", Sha256Hex("three"))));
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_NE(FindUser(*list, "one"), nullptr);
  EXPECT_THAT(PrincipalsOf(*FindUser(*list, "one")), ElementsAre("user:ann", "role:viewer"));
  ASSERT_NE(FindUser(*list, "two"), nullptr);
  EXPECT_THAT(PrincipalsOf(*FindUser(*list, "two")), ElementsAre("user:b.ob@x", "role:admin"));
  ASSERT_NE(FindUser(*list, "three"), nullptr);
  EXPECT_EQ(FindUser(*list, "three")->role, "submitter");
  for (const char* token : {"", "on", "one ", "One"}) EXPECT_EQ(FindUser(*list, token), nullptr);
  EXPECT_EQ(FindUser(*list, Sha256Hex("one")), nullptr);
}

TEST(UserList, MayBeEmpty) {
  const auto list = ParseUserList(List(""));
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(FindUser(*list, ""), nullptr);
}

TEST(UserList, RefusesWhatItWouldMisread) {
  const std::string good = Entry("ann", "viewer", Hash());
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "users"},
      {"[]", "top level: not an object"},
      {"{}", "a list of {name, role, token_sha256} is needed"},
      {R"({"users": {}})", "a list of {name, role, token_sha256} is needed"},
      {StrCat(R"({"users": [)", good, R"(], "groups": []})"), "\"groups\" is not supported"},
      {List("1"), "users[0]: not an object"},
      {List(R"({"name": "ann", "role": "viewer"})"), "users[0].token_sha256: a text is needed"},
      {List(good + R"(,{"name": 1})"), "users[1].name: a text is needed"},
      {List(R"({"name": "ann", "role": "viewer", "token_sha256": "x", "token": "t"})"),
       "\"token\" is not supported"},
      {List(Entry("", "viewer", Hash())), "users[0].name"},
      {List(Entry("a b", "viewer", Hash())), "users[0].name"},
      {List(Entry(std::string(129, 'a'), "viewer", Hash())), "users[0].name"},
      {List(Entry("ann", "root", Hash())), "viewer, submitter or admin is needed"},
      {List(Entry("ann", "Admin", Hash())), "viewer, submitter or admin is needed"},
      {List(Entry("ann", "viewer", Hash().substr(1))), "64 hex digits"},
      {List(Entry("ann", "viewer", Hash().substr(1) + "g")), "64 hex digits"},
      {List(good + "," + Entry("bob", "admin", Hash())), "users[1].token_sha256: another entry"},
      {std::string(100, '['), "users"},
      {std::string((1 << 20) + 1, ' '), "limit"}};
  for (const auto& [json, part] : bad) {
    const auto list = ParseUserList(json);
    ASSERT_FALSE(list.ok()) << json.substr(0, 200);
    EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(list.status().message()), HasSubstr(part)) << json.substr(0, 200);
    EXPECT_THAT(std::string(list.status().message()), Not(HasSubstr("\n")));
  }
}

TEST(UserList, DoesNotRepeatATokenThatStandsInTheHashsPlace) {
  const auto list = ParseUserList(List(Entry("ann", "viewer", "s3cret-token")));
  EXPECT_THAT(std::string(list.status().message()), Not(HasSubstr("s3cret")));
}

TEST(UserList, KnowsNamesThatOnlyTokensGive) {
  EXPECT_TRUE(IsUserPrincipal("role:admin"));
  EXPECT_TRUE(IsUserPrincipal("user:ann"));
  EXPECT_FALSE(IsUserPrincipal("users.rl.svc"));
  EXPECT_FALSE(IsUserPrincipal("spiffe://f/role:admin"));
}

}  // namespace
}  // namespace freshet::runtime
