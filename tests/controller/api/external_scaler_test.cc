// KEDA's external scaler over gRPC.

#include "controller/api/external_scaler.h"

#include <optional>

#include "tests/controller/api/job_service_fixture.h"

namespace freshet {
namespace {

using externalscaler::ExternalScaler;
using externalscaler::GetMetricsRequest;
using externalscaler::GetMetricsResponse;
using externalscaler::IsActiveResponse;
using externalscaler::ScaledObjectRef;
using testing::HasSubstr;

// Pools "default" (min. 0 engines) and "big" (min. 2 engines).
class ExternalScalerTest : public JobServiceTest {
 protected:
  ExternalScalerTest() { cluster_.pools.bounds = {{"default", {0, 4}}, {"big", {2, 8}}}; }

  static ScaledObjectRef Target(const std::string& pool) {
    ScaledObjectRef target;
    target.set_name("engines");
    target.set_namespace_("ml");
    (*target.mutable_scalermetadata())["scalerAddress"] = "freshet-controller:7070";
    if (!pool.empty()) (*target.mutable_scalermetadata())["pool"] = pool;
    return target;
  }
  static std::unique_ptr<ExternalScaler::Stub> ScalerOf(ServedController& controller) {
    return ExternalScaler::NewStub(*runtime::MakeChannel(controller.address(), {}));
  }
  absl::StatusOr<bool> IsActive(ServedController& controller, const std::string& pool) {
    IsActiveResponse response;
    const absl::Status status = runtime::GrpcToStatus(
        ScalerOf(controller)->IsActive(runtime::CallWithin(kGuard).get(), Target(pool), &response));
    if (!status.ok()) return status;
    return response.result();
  }
  absl::StatusOr<double> Wanted(ServedController& controller, const std::string& pool,
                                const std::string& metric = "wanted") {
    GetMetricsRequest request;
    *request.mutable_scaledobjectref() = Target(pool);
    request.set_metricname(metric);
    GetMetricsResponse response;
    const absl::Status status = runtime::GrpcToStatus(
        ScalerOf(controller)->GetMetrics(runtime::CallWithin(kGuard).get(), request, &response));
    if (!status.ok()) return status;
    EXPECT_EQ(response.metricvalues_size(), 1);
    EXPECT_EQ(response.metricvalues(0).metricname(), "wanted");
    EXPECT_EQ(static_cast<double>(response.metricvalues(0).metricvalue()),
              response.metricvalues(0).metricvaluefloat());
    return response.metricvalues(0).metricvaluefloat();
  }
  // Advances the clock second by second until `holds`.
  ::testing::AssertionResult After(const std::function<bool()>& holds) {
    const bool held = Eventually([&] {
      cluster_.clock.Advance(absl::Seconds(1));
      return holds();
    });
    return held ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << "never";
  }
};

TEST_F(ExternalScalerTest, OneReplicaIsWorthOne) {
  Serve();
  externalscaler::GetMetricSpecResponse spec;
  ASSERT_TRUE(ScalerOf(*served_)
                  ->GetMetricSpec(runtime::CallWithin(kGuard).get(), Target("default"), &spec)
                  .ok());
  ASSERT_EQ(spec.metricspecs_size(), 1);
  EXPECT_EQ(spec.metricspecs(0).metricname(), "wanted");
  EXPECT_EQ(spec.metricspecs(0).targetsize(), 1);
  EXPECT_EQ(spec.metricspecs(0).targetsizefloat(), 1);
  const auto context = runtime::CallWithin(kGuard);
  const auto stub = ScalerOf(*served_);
  const auto stream = stub->StreamMetricSpec(context.get(), Target("default"));
  externalscaler::GetMetricSpecResponse pushed;
  ASSERT_TRUE(stream->Read(&pushed));
  EXPECT_EQ(pushed.SerializeAsString(), spec.SerializeAsString());
  EXPECT_EQ(served_->scaler().open_streams(), 1);
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ExternalScalerTest, TellsTheWantedNumber) {
  Serve();
  EXPECT_TRUE(After([&] { return Wanted(*served_, "big").value_or(-1) == 2; }));
  EXPECT_EQ(*IsActive(*served_, "big"), true);
  EXPECT_EQ(*Wanted(*served_, "default"), 0);
  EXPECT_EQ(*IsActive(*served_, "default"), false);
  EXPECT_EQ(*Wanted(*served_, ""), 0) << "no pool is the default one";
  ASSERT_TRUE(Submit("a").ok());
  EXPECT_TRUE(After([&] { return Wanted(*served_, "default").value_or(-1) == 1; }))
      << "a job needs an engine to begin with";
  EXPECT_EQ(*IsActive(*served_, ""), true);
}

TEST_F(ExternalScalerTest, ActivityIsPushed) {
  Serve();
  ASSERT_TRUE(After([&] { return Wanted(*served_, "default").ok(); }));
  const auto context = runtime::CallWithin(kGuard);
  const auto stub = ScalerOf(*served_);
  const auto stream = stub->StreamIsActive(context.get(), Target("default"));
  IsActiveResponse response;
  ASSERT_TRUE(stream->Read(&response)) << "at once";
  EXPECT_FALSE(response.result());
  ASSERT_TRUE(Submit("a").ok());
  ASSERT_TRUE(After([&] { return Wanted(*served_, "default").value_or(0) == 1; }));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.result());
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ExternalScalerTest, WhatItDoesNotKnowIsNamed) {
  Serve();
  ASSERT_TRUE(After([&] { return Wanted(*served_, "big").ok(); }));
  const absl::Status pool = Wanted(*served_, "other").status();
  EXPECT_EQ(pool.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(pool.message()), HasSubstr("--pool-bounds other=MIN..MAX"));
  EXPECT_EQ(IsActive(*served_, "other").status().code(), absl::StatusCode::kNotFound);
  const absl::Status metric = Wanted(*served_, "big", "cpu").status();
  EXPECT_EQ(metric.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Fields(metric), std::vector<std::string>{"metricName"});
  const auto context = runtime::CallWithin(kGuard);
  const auto stub = ScalerOf(*served_);
  const auto stream = stub->StreamIsActive(context.get(), Target("other"));
  IsActiveResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ExternalScalerTest, AStandbyAnswersForTheLeader) {
  Serve();
  ASSERT_TRUE(After([&] { return Wanted(*served_, "big").ok(); }));
  ServedController standby(cluster_, "two");
  ASSERT_TRUE(
      Eventually([&] { return standby.controller().Leader().address == served_->address(); }));
  EXPECT_EQ(*Wanted(standby, "big"), 2);
  EXPECT_EQ(*IsActive(standby, "default"), false);
  EXPECT_EQ(Wanted(standby, "other").status().code(), absl::StatusCode::kNotFound);
  const auto context = runtime::CallWithin(kGuard);
  const auto stub = ScalerOf(standby);
  const auto stream = stub->StreamIsActive(context.get(), Target("big"));
  IsActiveResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.result());
  context->TryCancel();
  served_->Unplug();
  EXPECT_EQ(Wanted(standby, "big").status().code(), absl::StatusCode::kUnavailable)
      << "KEDA leaves the number alone";
}

TEST_F(ExternalScalerTest, ClusterAndJobShowTheNumberWithItsReason) {
  Serve();
  Run("a");
  ASSERT_TRUE(After([&] {
    Beat();
    return Get("a").rollouts().wanted() == 1;
  }));
  const job::v1::PoolScale scale = Get("a").rollouts();
  EXPECT_EQ(scale.pool(), "default");
  EXPECT_EQ(scale.max(), 4);
  EXPECT_FALSE(scale.reason().empty());
  EXPECT_FALSE(scale.text().empty());
  job::v1::Cluster cluster;
  ASSERT_TRUE(Call(&Stub::GetCluster, job::v1::GetClusterRequest(), cluster).ok());
  ASSERT_EQ(cluster.pools_size(), 2);
  EXPECT_EQ(cluster.pools(0).pool(), "big");
  EXPECT_EQ(cluster.pools(0).reason(), "no_job");
  EXPECT_EQ(cluster.pools(1).pool(), "default");
  EXPECT_EQ(cluster.jobs(0).rollouts().pool(), "default");
}

}  // namespace
}  // namespace freshet
