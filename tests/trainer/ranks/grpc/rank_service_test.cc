#include "trainer/ranks/grpc/rank_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/log.h"
#include "services/runtime/readiness.h"
#include "tests/testing/loopback_server.h"
#include "trainer/ranks/message_socket.h"
#include "trainer/ranks/grpc/rank_role.h"

namespace freshet {
namespace {

using trainer::v1::RankBytes;

constexpr absl::Duration kLong = absl::Minutes(1);

class RankServiceTest : public testing::Test {
 protected:
  // Joins as rank `rank`, and answers every message with itself.
  std::unique_ptr<RankRole> Join(int rank, int ranks = 3) {
    RankRoleOptions options;
    options.rank = rank;
    options.ranks = ranks;
    options.rank_zero = grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials());
    options.run = [](UniqueFd fd) {
      MessageSocket socket(std::move(fd));
      RankBytes message;
      while (socket.Receive(message, absl::InfiniteDuration()).ok()) {
        const absl::Status sent = socket.Send(message, kLong);
        if (!sent.ok()) return sent;
      }
      return absl::OkStatus();
    };
    auto role = std::make_unique<RankRole>(std::move(options));
    runtime::RoleContext context;
    context.readiness = &readiness_;
    EXPECT_TRUE(role->Start(context).ok());
    return role;
  }
  // A rank that has joined.
  std::unique_ptr<MessageSocket> Take() {
    std::vector<JoinedRanks::Rank> taken = joined_->Take(1, kLong);
    EXPECT_EQ(taken.size(), 1U);
    return std::make_unique<MessageSocket>(std::move(taken.at(0).socket));
  }
  // Sends `size` bytes and expects them back.
  static void ExpectEcho(MessageSocket& socket, size_t size) {
    RankBytes message;
    message.set_data(std::string(size, 'x'));
    ASSERT_TRUE(socket.Send(message, kLong).ok());
    RankBytes answer;
    const absl::Status received = socket.Receive(answer, kLong);
    ASSERT_TRUE(received.ok()) << received;
    EXPECT_EQ(answer.data().size(), size);
  }
  // Waits for a change of the readiness to `ready`, and returns its description.
  std::string Await(bool ready) {
    Notification changed;
    readiness_.OnChange([&](bool now) {
      if (now == ready && !changed.HasBeenNotified()) changed.Notify();
    });
    if (readiness_.ready() != ready) {
      EXPECT_TRUE(changed.WaitFor(kLong));
    }
    readiness_.OnChange(nullptr);
    return readiness_.Describe();
  }

  runtime::Readiness readiness_;
  const std::shared_ptr<JoinedRanks> joined_ = std::make_shared<JoinedRanks>(3);
  GrpcRankService service_{joined_};
  LoopbackServer server_{&service_};
};

TEST_F(RankServiceTest, CarriesMessagesBothWaysAndJoinsAgainAfterAGroup) {
  const auto role = Join(2);
  for (int group = 0; group < 2; ++group) {
    const auto socket = Take();
    ExpectEcho(*socket, 5);
    ExpectEcho(*socket, 100'000);
  }
  EXPECT_TRUE(role->Drain(absl::Now() + kLong).ok());
}

TEST_F(RankServiceTest, ALargeShareArrives) {
  const auto role = Join(1);
  const auto socket = Take();
  RankBytes message;
  message.set_data(std::string(size_t{20} << 20, 'x'));
  EXPECT_TRUE(socket->Send(message, kLong).ok());
}

TEST_F(RankServiceTest, ARankThatLeavesIsNoticed) {
  auto role = Join(1);
  const auto socket = Take();
  ExpectEcho(*socket, 5);
  role = nullptr;
  RankBytes answer;
  EXPECT_TRUE(absl::IsUnavailable(socket->Receive(answer, kLong)));
  role = Join(1);
  ExpectEcho(*Take(), 5);
}

TEST_F(RankServiceTest, ANumberThatTheTrainerDoesNotHaveIsRefused) {
  const auto role = Join(1, /*ranks=*/4);
  EXPECT_EQ(joined_->Ready(), 0);
  while (readiness_.Describe().find("this trainer has ranks 0 to 2") == std::string::npos) {
    Await(false);
  }
  EXPECT_EQ(joined_->Ready(), 0);
}

}  // namespace
}  // namespace freshet
