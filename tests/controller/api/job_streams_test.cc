// The streams of JobService over gRPC.

#include "controller/jobs/record/job_registry.h"
#include "tests/controller/api/job_service_fixture.h"

namespace freshet {
namespace {

using job::v1::Event;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class JobStreamsTest : public JobServiceTest {
 protected:
  // At most `most` events of a job after `cursor`, and the stream's status if it ended by itself.
  struct Watched {
    std::vector<Event> events;
    absl::Status end;
  };
  Watched Watch(const std::string& id, const std::string& cursor, size_t most = 1000) {
    job::v1::WatchRequest request;
    request.set_job_id(id);
    request.set_cursor(cursor);
    const auto context = runtime::CallWithin(kGuard);
    const auto reader = stub().Watch(context.get(), request);
    Watched watched;
    Event event;
    while (watched.events.size() < most && reader->Read(&event)) watched.events.push_back(event);
    if (watched.events.size() == most) context->TryCancel();
    watched.end = runtime::GrpcToStatus(reader->Finish());
    return watched;
  }
  void AppendRows(const std::string& id, int first, int last) {
    for (int step = first; step <= last; ++step) {
      Event event;
      event.set_metrics_json(StrCat("{\"step\":", step, "}"));
      ASSERT_TRUE(cluster_.events
                      ->Append(EventStream(id), StrCat("step/0/", step), event.SerializeAsString())
                      .ok());
    }
  }
  static std::vector<std::string> Rows(const std::vector<Event>& events) {
    std::vector<std::string> rows;
    for (const Event& event : events) {
      if (!event.metrics_json().empty()) rows.push_back(event.metrics_json());
    }
    return rows;
  }
};

TEST_F(JobStreamsTest, WatchSendsAllEventsAndEndsWithTheJob) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  AppendRows("a", 1, 3);
  ASSERT_TRUE(Cancel("a").ok());
  const Watched watched = Watch("a", "");
  EXPECT_TRUE(watched.end.ok()) << watched.end;
  ASSERT_EQ(watched.events.size(), 5U);
  EXPECT_EQ(watched.events.front().state().state(), job::v1::JOB_STATE_PENDING);
  EXPECT_EQ(watched.events.back().state().state(), job::v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Rows(watched.events).size(), 3U);
}

TEST_F(JobStreamsTest, WatchSendsNewEventsAsTheyHappen) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  job::v1::WatchRequest request;
  request.set_job_id("a");
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = stub().Watch(context.get(), request);
  Event event;
  ASSERT_TRUE(reader->Read(&event));
  AppendRows("a", 1, 1);
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.metrics_json(), "{\"step\":1}");
  ASSERT_TRUE(Cancel("a").ok());
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(JobStreamsTest, ABrokenWatchGoesOnAfterItsCursor) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  AppendRows("a", 1, 40);
  ASSERT_TRUE(Cancel("a").ok());
  std::vector<Event> all;
  std::string cursor;
  for (const size_t most : {1U, 7U, 13U, 1000U}) {
    const Watched watched = Watch("a", cursor, most);
    ASSERT_FALSE(watched.events.empty());
    all.insert(all.end(), watched.events.begin(), watched.events.end());
    cursor = all.back().cursor();
  }
  const std::vector<std::string> rows = Rows(all);
  ASSERT_EQ(rows.size(), 40U);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(rows[i], StrCat("{\"step\":", i + 1, "}"));
  EXPECT_THAT(Watch("a", cursor).events, IsEmpty());
}

TEST_F(JobStreamsTest, AGapIsOutOfRange) {
  EventLogOptions short_log;
  short_log.max_length = 10;
  short_log.recent_keys = 5;
  cluster_.events = *InMemoryEventLog::Create(short_log);
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  const std::string cursor = Watch("a", "", 1).events[0].cursor();
  AppendRows("a", 1, 30);
  const absl::Status gap = Watch("a", cursor).end;
  EXPECT_EQ(gap.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(runtime::DetailsOf(gap).reason, "OUT_OF_RANGE");
  // An empty cursor starts at the oldest retained event.
  EXPECT_EQ(Rows(Watch("a", "", 10).events).size(), 10U);
  // A cursor beyond the stream is OUT_OF_RANGE, too.
  EXPECT_EQ(Watch("a", "999").end.code(), absl::StatusCode::kOutOfRange);
}

TEST_F(JobStreamsTest, WatchChecksItsFields) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  const absl::Status bad = Watch("a", "yesterday").end;
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Fields(bad), ElementsAre("cursor"));
  EXPECT_EQ(Watch("nobody", "").end.code(), absl::StatusCode::kNotFound);
}

TEST_F(JobStreamsTest, ADeletedJobEndsItsWatch) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  job::v1::WatchRequest request;
  request.set_job_id("a");
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = stub().Watch(context.get(), request);
  Event event;
  ASSERT_TRUE(reader->Read(&event));
  ASSERT_TRUE(Cancel("a").ok());
  ASSERT_TRUE(Delete("a").ok());
  while (reader->Read(&event)) {
  }
  // The status depends on whether the stream sees the end or the deletion first.
  const absl::StatusCode code = runtime::GrpcToStatus(reader->Finish()).code();
  EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kOutOfRange) << code;
}

TEST_F(JobStreamsTest, StreamsAreBounded) {
  JobServiceOptions options;
  options.max_streams = 1;
  Serve(options);
  ASSERT_TRUE(Submit("a").ok());
  job::v1::WatchRequest request;
  request.set_job_id("a");
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = stub().Watch(context.get(), request);
  Event event;
  ASSERT_TRUE(reader->Read(&event));
  const absl::Status full = Watch("a", "").end;
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(runtime::DetailsOf(full).retry_after.has_value());
  context->TryCancel();
  reader->Finish();
}

TEST_F(JobStreamsTest, TheControllersOwnLinesAreTakenAsTheyCome) {
  struct Lines {
    std::atomic<int> last{0};   // newest line
    std::atomic<int> taken{0};  // last line returned
  };
  const auto lines = std::make_shared<Lines>();  // the controller outlives this function
  Serve({}, [lines] {
    std::vector<job::v1::LogEntry> entries;
    if (lines->taken == lines->last) return entries;
    job::v1::LogEntry& entry = entries.emplace_back();
    entry.set_role("controller");
    entry.set_text(StrCat("line ", ++lines->taken));
    return entries;
  });
  for (const int line : {1, 2}) {
    lines->last = line;
    ASSERT_TRUE(Eventually([&] { return lines->taken == line; })) << "though nobody asks for them";
  }
  lines->last = 5;
  job::v1::LogsRequest request;
  request.set_tail(2);
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = stub().Logs(context.get(), request);
  job::v1::LogEntry entry;
  std::vector<std::string> texts;
  while (reader->Read(&entry)) texts.push_back(entry.text());
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(texts, ElementsAre("line 4", "line 5"));
}

TEST_F(JobStreamsTest, SamplesComeNewestFirst) {
  Serve();
  ASSERT_TRUE(Submit("a").ok());
  job::v1::ListSamplesRequest request;
  request.set_job_id("a");
  job::v1::ListSamplesReply reply;
  ASSERT_TRUE(Call(&Stub::ListSamples, request, reply).ok());
  EXPECT_EQ(reply.samples_json_size(), 0);
  for (int i = 1; i <= 30; ++i) {
    ASSERT_TRUE(cluster_.events->Append(SampleStream("a"), "", StrCat("{\"n\":", i, "}")).ok());
  }
  request.set_limit(3);
  ASSERT_TRUE(Call(&Stub::ListSamples, request, reply).ok());
  EXPECT_THAT(reply.samples_json(), ElementsAre("{\"n\":30}", "{\"n\":29}", "{\"n\":28}"));
  request.set_limit(1001);
  EXPECT_THAT(Fields(Call(&Stub::ListSamples, request, reply)), ElementsAre("limit"));
}

TEST_F(JobStreamsTest, ExportsACheckpointFileByFile) {
  Serve();
  Run("a");
  job::v1::ExportCheckpointRequest request;
  request.set_job_id("a");
  request.set_version(3);
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = stub().ExportCheckpoint(context.get(), request);
  job::v1::FileChunk chunk;
  std::vector<std::string> paths;
  while (reader->Read(&chunk)) paths.push_back(chunk.path());
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(paths, ElementsAre("config.json", "model.safetensors"));

  request.set_version(9);
  const auto again = runtime::CallWithin(kGuard);
  const auto missing = stub().ExportCheckpoint(again.get(), request);
  EXPECT_FALSE(missing->Read(&chunk));
  EXPECT_EQ(missing->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobStreamsTest, ExportsGeneratedFiles) {
  Serve();
  Run("a");
  job::v1::ExportCheckpointRequest request;
  request.set_job_id("a");
  request.set_generated_after(5);
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = stub().ExportCheckpoint(context.get(), request);
  job::v1::FileChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  EXPECT_EQ(chunk.path(), "after 5");
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(JobStreamsTest, TheLedgerIsReadFromWhereTheCallerStopped) {
  Serve();
  Run("a");
  job::v1::ReadLedgerRequest request;
  request.set_job_id("a");
  const auto context = runtime::CallWithin(kGuard);
  const auto reader = stub().ReadLedger(context.get(), request);
  job::v1::LedgerChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  EXPECT_THAT(chunk.rows(0), HasSubstr("\"event\":\"open\""));
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_TRUE(reader->Finish().ok());
  request.set_after_seq(-1);
  const auto again = runtime::CallWithin(kGuard);
  const auto bad = stub().ReadLedger(again.get(), request);
  EXPECT_FALSE(bad->Read(&chunk));
  EXPECT_THAT(Fields(runtime::GrpcToStatus(bad->Finish())), ElementsAre("after_seq"));
}

}  // namespace
}  // namespace freshet
