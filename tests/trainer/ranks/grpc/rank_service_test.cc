#include "trainer/ranks/grpc/rank_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/message_socket.h"
#include "base/version.h"
#include "tests/testing/loopback_server.h"
#include "trainer/ranks/grpc/rank_role.h"

namespace freshet {
namespace {

using trainer::v1::RankBytes;

constexpr absl::Duration kLong = absl::Minutes(1);

class RankServiceTest : public testing::Test {
 protected:
  // Joins as rank `rank`, and answers every message with itself.
  std::unique_ptr<RankRole> Join(int rank) {
    RankRoleOptions options;
    options.rank = rank;
    options.ranks = joined_->ranks();
    options.connect = [this] {
      return grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials());
    };
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
    EXPECT_TRUE(role->Start({}).ok());
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

  const std::shared_ptr<JoinedRanks> joined_ = std::make_shared<JoinedRanks>(3);
  GrpcRankService service_{joined_};
  LoopbackServer server_{&service_};
};

TEST_F(RankServiceTest, CarriesMessagesBothWaysAndJoinsAgainAfterAGroup) {
  const auto role = Join(2);
  for (int group = 0; group < 2; ++group) {
    const auto socket = Take();
    ExpectEcho(*socket, 5);
    ExpectEcho(*socket, size_t{20} << 20);
  }
  EXPECT_TRUE(role->Drain(absl::Now() + kLong).ok());
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

TEST_F(RankServiceTest, AProcessThatDoesNotFitIsRefused) {
  const auto refusal = [this](int rank, int ranks, const std::string& version) {
    const auto stub = trainer::v1::RankService::NewStub(
        grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    const auto stream = stub->Join(&context);
    RankBytes hello;
    hello.set_rank(rank);
    hello.set_ranks(ranks);
    hello.set_version(version);
    stream->Write(hello);
    RankBytes answer;
    EXPECT_FALSE(stream->Read(&answer));
    return stream->Finish().error_message();
  };
  EXPECT_EQ(refusal(1, 4, Version()), "rank 1 of 4: this trainer has ranks 0 to 2");
  EXPECT_EQ(refusal(0, 3, Version()), "rank 0 of 3: this trainer has ranks 0 to 2");
  EXPECT_THAT(refusal(1, 3, "other"), testing::HasSubstr("rank 1 has other"));
  EXPECT_THAT(joined_->Ready(), testing::IsEmpty());
}

}  // namespace
}  // namespace freshet
