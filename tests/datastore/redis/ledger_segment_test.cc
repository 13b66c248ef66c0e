#include "datastore/redis/ledger_segment.h"

#include <zlib.h>

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

RedisReply Text(const std::string& text) {
  RedisReply reply;
  reply.kind = RedisReply::Kind::kString;
  reply.text = text;
  return reply;
}

RedisReply Entry(const std::string& id, const std::vector<std::string>& fields) {
  RedisReply entry;
  entry.items = {Text(id), {}};
  for (const std::string& field : fields) entry.items[1].items.push_back(Text(field));
  return entry;
}

std::vector<RedisReply> Entries() {
  std::vector<RedisReply> entries;
  for (int i = 0; i < 20; ++i) {
    const std::string lines = StrCat("0 token", i, " 0123abcd 9 1:5:100:", i,
                                     " 0:3:0:4:4;0:4:4:9:5\n1 t ff 9 1:5:0:7 0:3:0:9:9");
    entries.push_back(
        Entry(StrCat(2 * i + 1, "-0"), {"event", "trained", "head", "1 2 3 4 5 6", "rows", lines}));
  }
  entries.push_back(Entry("41-0", {"event", "dead", "reason", "\"reset\"\n7:failed", "rows", ""}));
  return entries;
}

std::string TextOf(const std::vector<RedisReply>& entries) {
  std::string text;
  for (const RedisReply& entry : entries) {
    text += entry.items[0].text;
    for (const RedisReply& field : entry.items[1].items) text += StrCat("|", field.text);
    text += '\n';
  }
  return text;
}

// A segment of any text, well packed.
std::string Segment(const std::string& text, const std::string& size) {
  uLongf length = compressBound(text.size());
  std::string packed(length, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &length,
           reinterpret_cast<const Bytef*>(text.data()), text.size());
  return StrCat(size, " ", packed.substr(0, length));
}

TEST(LedgerSegment, KeepsAllButWhereTheBytesLie) {
  const auto segment = PackLedgerSegment(Entries());
  ASSERT_TRUE(segment.ok()) << segment.status();
  const auto entries = UnpackLedgerSegment(*segment);
  ASSERT_TRUE(entries.ok()) << entries.status();
  std::vector<RedisReply> expected = Entries();
  for (int i = 0; i < 20; ++i) {
    expected[i].items[1].items[5].text =
        "0 0 0 0 0:0:0:0 0:3:0:4:4;0:4:4:9:5\n1 0 0 0 0:0:0:0 0:3:0:9:9";
  }
  EXPECT_EQ(TextOf(*entries), TextOf(expected));
}

TEST(LedgerSegment, PacksOnlyEntries) {
  EXPECT_EQ(PackLedgerSegment({Text("no entry")}).status().code(), kDataLoss);
  EXPECT_EQ(PackLedgerSegment({Entry("1-0", {"rows", "0 no record"})}).status().code(), kDataLoss);
}

TEST(LedgerSegment, ACutIsDataLossAndABrokenByteChangesNothing) {
  const std::string segment = *PackLedgerSegment(Entries());
  for (size_t i = 0; i < segment.size(); ++i) {
    EXPECT_EQ(UnpackLedgerSegment(segment.substr(0, i)).status().code(), kDataLoss) << i;
    std::string broken = segment;
    broken[i] = static_cast<char>(broken[i] ^ 0x10);
    const auto entries = UnpackLedgerSegment(broken);
    // Some bits between the text and its checksum mean nothing.
    if (entries.ok()) {
      EXPECT_EQ(TextOf(*entries), TextOf(*UnpackLedgerSegment(segment))) << i;
    } else {
      EXPECT_EQ(entries.status().code(), kDataLoss) << i;
    }
  }
}

TEST(LedgerSegment, RefusesWhatIsNone) {
  const std::string zeros(size_t{1} << 20, '\0');
  std::string many;  // entries without anything
  for (int i = 0; i < 40'000; ++i) many += " 0 ";
  for (const std::string& hostile :
       {std::string("nonsense"), std::string("-1 x"), std::string("99999999999999999999 x"),
        StrCat(kMaxSegmentBytes + 1, " x"), Segment(zeros, "10"), Segment("{}", "1000"),
        Segment("no entry", "8"), Segment("1-0 1 3:ab", "10"), Segment("1-0 9999999999 1:a", "18"),
        Segment("1-0 -2 ", "7"), Segment("1-0 1 1:a", "9"), Segment(many, StrCat(many.size()))}) {
    EXPECT_EQ(UnpackLedgerSegment(hostile).status().code(), kDataLoss) << hostile.substr(0, 40);
  }
}

}  // namespace
}  // namespace freshet
