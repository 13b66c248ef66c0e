#include "base/message_socket.h"

#include <sys/socket.h>

#include <string>
#include <thread>
#include <utility>

#include "freshet/trainer/v1/rank.pb.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using trainer::v1::RankReport;

constexpr absl::Duration kAmple = absl::Minutes(1);
constexpr absl::Duration kBrief = absl::Milliseconds(20);

class MessageSocketTest : public testing::Test {
 protected:
  MessageSocketTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    here_ = UniqueFd(ends[0]);
    raw_ = ends[0];
    there_ = std::make_unique<MessageSocket>(UniqueFd(ends[1]));
  }
  void Write(const std::string& bytes) {
    ASSERT_EQ(::send(raw_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

  UniqueFd here_;
  int raw_ = -1;
  std::unique_ptr<MessageSocket> there_;
  RankReport message_;
};

TEST_F(MessageSocketTest, MessagesArriveInOrderAndLargeOnesWhole) {
  MessageSocket here(std::move(here_));
  RankReport large;
  large.set_error(std::string(size_t{5} << 20, 'x'));
  std::thread sends([&] {
    EXPECT_EQ(here.Send(large, kAmple), absl::OkStatus());
    EXPECT_EQ(here.Send(RankReport(), kAmple), absl::OkStatus());
  });
  EXPECT_EQ(there_->Receive(message_, kAmple), absl::OkStatus());
  EXPECT_EQ(message_.error(), large.error());
  EXPECT_EQ(there_->Receive(message_, kAmple), absl::OkStatus());
  EXPECT_EQ(message_.error(), "");
  sends.join();
}

TEST_F(MessageSocketTest, NothingInTimeIsADeadline) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(there_->Receive(message_, kBrief)));
  Write(std::string("\x05\0\0", 3));  // part of a length
  EXPECT_TRUE(absl::IsDeadlineExceeded(there_->Receive(message_, kBrief)));
}

TEST_F(MessageSocketTest, ASideThatDoesNotReadIsADeadline) {
  MessageSocket here(std::move(here_));
  RankReport large;
  large.set_error(std::string(size_t{5} << 20, 'x'));
  EXPECT_TRUE(absl::IsDeadlineExceeded(here.Send(large, kBrief)));
}

TEST_F(MessageSocketTest, TheEndIsUnavailableAlsoWithinAMessage) {
  Write(std::string("\x05\0\0\0ab", 6));
  here_ = UniqueFd();
  EXPECT_TRUE(absl::IsUnavailable(there_->Receive(message_, kAmple)));
  EXPECT_TRUE(absl::IsUnavailable(there_->Receive(message_, kAmple)));
  EXPECT_TRUE(absl::IsUnavailable(there_->Send(RankReport(), kAmple)));
}

TEST_F(MessageSocketTest, LengthsAndBytesOfNoMessageAreDataLoss) {
  Write("\xff\xff\xff\xff");
  EXPECT_TRUE(absl::IsDataLoss(there_->Receive(message_, kAmple)));
  Write(std::string("\x02\0\0\0\xff\xff", 6));
  EXPECT_TRUE(absl::IsDataLoss(there_->Receive(message_, kAmple)));
}

}  // namespace
}  // namespace freshet
