#include "controller/api/job_streams.h"

#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/api/api_errors.h"
#include "controller/api/job_views.h"
#include "datastore/ledger.h"

namespace freshet {
namespace {

// How often a blocked stream checks whether its client is still connected.
constexpr absl::Duration kClientCheck = absl::Seconds(1);
constexpr int64_t kEventsPerRead = 500;
constexpr int64_t kLedgerRowsPerRead = 2000;
constexpr size_t kLedgerChunkBytes = size_t{1} << 20;

}  // namespace

absl::Status SendEvents(const Controller& controller, const job::v1::WatchRequest& request,
                        StreamSink<job::v1::Event>& sink) {
  FRESHET_ASSIGN_OR_RETURN(int64_t cursor, ParseCursor(request.cursor()));
  FRESHET_RETURN_IF_ERROR(controller.registry().Get(request.job_id()).status());
  EventLog& events = controller.ports().events;
  const std::string stream = EventStream(request.job_id());
  bool ended = false;  // no more events are expected
  while (!sink.ended()) {
    FRESHET_ASSIGN_OR_RETURN(
        const EventPage page,
        events.Read(stream, cursor, kEventsPerRead, ended ? absl::ZeroDuration() : kClientCheck));
    if (page.gap && cursor > 0) {
      return StatusOf(absl::StatusCode::kOutOfRange, "cursor: events after ", cursor,
                      " have expired; watch from the beginning");
    }
    for (const StoredEvent& stored : page.events) {
      FRESHET_ASSIGN_OR_RETURN(const job::v1::Event event, ToEvent(stored));
      if (!sink.Write(event)) return ClientIsGone();
      cursor = stored.cursor;
      // The final state is the last event, unless the job is resumed.
      ended = event.has_state() && HasEnded(event.state().state());
    }
    if (!page.events.empty()) continue;
    if (ended) return absl::OkStatus();
    // An ended job gets no more events. Read the remaining ones once more.
    const absl::StatusOr<JobRecord> record = controller.registry().Get(request.job_id());
    if (record.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(record.status());
    ended = HasEnded(record->state());
  }
  return ClientIsGone();
}

absl::Status SendLedger(const Controller& controller, const job::v1::ReadLedgerRequest& request,
                        StreamSink<job::v1::LedgerChunk>& sink) {
  if (request.after_seq() < 0) {
    return InvalidArgument("after_seq: ", request.after_seq(), " is negative");
  }
  FRESHET_RETURN_IF_ERROR(controller.registry().Get(request.job_id()).status());
  FRESHET_ASSIGN_OR_RETURN(const auto store, controller.ports().stores.Find(request.job_id()));
  int64_t seq = request.after_seq();
  while (!sink.ended()) {
    FRESHET_ASSIGN_OR_RETURN(const std::vector<LedgerRow> rows,
                             store->ReadLedger(seq, kLedgerRowsPerRead));
    if (rows.empty()) return absl::OkStatus();
    job::v1::LedgerChunk chunk;
    size_t bytes = 0;
    for (const LedgerRow& row : rows) {
      chunk.add_rows(LedgerRowToJson(row));
      bytes += chunk.rows(chunk.rows_size() - 1).size();
      if (bytes < kLedgerChunkBytes) continue;
      if (!sink.Write(chunk)) return ClientIsGone();
      chunk.Clear();
      bytes = 0;
    }
    if (chunk.rows_size() > 0 && !sink.Write(chunk)) return ClientIsGone();
    seq = rows.back().seq;
  }
  return ClientIsGone();
}

absl::Status SendLogs(const Controller& controller, ControllerTerm& term,
                      const job::v1::LogsRequest& request, StreamSink<job::v1::LogEntry>& sink) {
  if (request.tail() < 0) return InvalidArgument("tail: ", request.tail(), " is negative");
  if (!request.job_id().empty()) {
    FRESHET_RETURN_IF_ERROR(term.registry.Get(request.job_id()).status());
  }
  WorkerLogs& log = term.hub->log();
  const LogFilter filter{request.job_id(), request.role(), request.worker()};
  const OwnLog& own = controller.options().own_log;
  log.TakeOwn(own);
  LogPage page = log.Tail(filter, static_cast<size_t>(request.tail()));
  while (true) {
    for (const job::v1::LogEntry& entry : page.entries) {
      if (!sink.Write(entry)) return ClientIsGone();
    }
    if (!request.follow()) return absl::OkStatus();
    if (sink.ended()) return ClientIsGone();
    if (controller.Active().get() != &term) return NotLeading(controller.Leader());
    log.TakeOwn(own);
    page = log.Next(filter, page.position, kClientCheck);
  }
}

}  // namespace freshet
