#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/api/api_errors.h"
#include "controller/api/job_service.h"
#include "controller/api/job_views.h"
#include "datastore/ledger.h"
#include "services/runtime/status.h"
#include "services/runtime/unary.h"

namespace freshet {
namespace {

// How often a blocked stream checks whether its client is still connected.
constexpr absl::Duration kLook = absl::Seconds(1);
constexpr int64_t kEventsPerRead = 500;
constexpr int64_t kLedgerRowsPerRead = 2000;
constexpr size_t kLedgerChunkBytes = size_t{1} << 20;
constexpr absl::Duration kLongestExport = absl::Hours(4);

absl::Status Gone() { return absl::CancelledError("the client is gone"); }

}  // namespace

grpc::ServerWriteReactor<job::v1::Event>* JobServiceImpl::Watch(
    grpc::CallbackServerContext*, const job::v1::WatchRequest* request) {
  return streams_.Run<job::v1::Event>([this, r = *request](StreamSink<job::v1::Event>& sink) {
    return Explained(WatchJob(r, sink), r.job_id());
  });
}

absl::Status JobServiceImpl::WatchJob(const job::v1::WatchRequest& request,
                                      StreamSink<job::v1::Event>& sink) {
  FRESHET_ASSIGN_OR_RETURN(int64_t cursor, ParseCursor(request.cursor()));
  FRESHET_RETURN_IF_ERROR(controller_.registry().Get(request.job_id()).status());
  EventLog& events = controller_.ports().events;
  const std::string stream = EventStream(request.job_id());
  bool ended = false;  // no more events are expected
  while (!sink.ended()) {
    FRESHET_ASSIGN_OR_RETURN(
        const EventPage page,
        events.Read(stream, cursor, kEventsPerRead, ended ? absl::ZeroDuration() : kLook));
    if (page.gap && cursor > 0) {
      return StatusOf(absl::StatusCode::kOutOfRange, "cursor: events after ", cursor,
                      " have expired; watch from the beginning");
    }
    for (const StoredEvent& stored : page.events) {
      FRESHET_ASSIGN_OR_RETURN(const job::v1::Event event, ToEvent(stored));
      if (!sink.Write(event)) return Gone();
      cursor = stored.cursor;
      // The final state is the last event, unless the job is resumed.
      ended = event.has_state() && HasEnded(event.state().state());
    }
    if (!page.events.empty()) continue;
    if (ended) return absl::OkStatus();
    // An ended job gets no more events. Read the remaining ones once more.
    const absl::StatusOr<JobRecord> record = controller_.registry().Get(request.job_id());
    if (record.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(record.status());
    ended = HasEnded(record->state());
  }
  return Gone();
}

grpc::ServerWriteReactor<job::v1::LedgerChunk>* JobServiceImpl::ReadLedger(
    grpc::CallbackServerContext*, const job::v1::ReadLedgerRequest* request) {
  return streams_.Run<job::v1::LedgerChunk>(
      [this, r = *request](StreamSink<job::v1::LedgerChunk>& sink) {
        return Explained(SendLedger(r, sink), r.job_id());
      });
}

absl::Status JobServiceImpl::SendLedger(const job::v1::ReadLedgerRequest& request,
                                        StreamSink<job::v1::LedgerChunk>& sink) {
  if (request.after_seq() < 0) {
    return InvalidArgument("after_seq: ", request.after_seq(), " is negative");
  }
  FRESHET_RETURN_IF_ERROR(controller_.registry().Get(request.job_id()).status());
  FRESHET_ASSIGN_OR_RETURN(const auto store, controller_.ports().stores.Find(request.job_id()));
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
      if (!sink.Write(chunk)) return Gone();
      chunk.Clear();
      bytes = 0;
    }
    if (chunk.rows_size() > 0 && !sink.Write(chunk)) return Gone();
    seq = rows.back().seq;
  }
  return Gone();
}

template <typename Request, typename Message>
grpc::ServerWriteReactor<Message>* JobServiceImpl::LeadStream(
    grpc::CallbackServerContext* context, const Request* request,
    std::unique_ptr<grpc::ClientReader<Message>> (job::v1::JobService::Stub::*method)(
        grpc::ClientContext*, const Request&),
    std::function<absl::Status(ControllerTerm&, const Request&, absl::Time, StreamSink<Message>&)>
        send) {
  return streams_.Run<Message>(
      [this, r = *request, method, send = std::move(send), origin = OriginOf(*context),
       deadline = runtime::DeadlineOf(*context)](StreamSink<Message>& sink) {
        const auto term = controller_.Active();
        const absl::Status sent = term != nullptr ? send(*term, r, deadline, sink)
                                                  : Relay(origin, r, deadline, method, sink);
        return Explained(sent, r.job_id());
      });
}

template <typename Request, typename Message>
absl::Status JobServiceImpl::Relay(const CallOrigin& origin, const Request& request,
                                   absl::Time deadline,
                                   std::unique_ptr<grpc::ClientReader<Message>> (
                                       job::v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&),
                                   StreamSink<Message>& sink) {
  const Leadership::View leader = controller_.Leader();
  if (!MayPassOn(origin, leader)) return NotLeading(leader);
  FRESHET_ASSIGN_OR_RETURN(const auto channel,
                           channels_.Get(leader.address, cluster::v1::ROLE_CONTROLLER));
  const auto stub = job::v1::JobService::NewStub(channel);
  const auto context = ContextToLeader(origin, std::min(kLongestExport, deadline - absl::Now()));
  const auto reader = (stub.get()->*method)(context.get(), request);
  LeaderCalls::Call pending(leader_calls_, leader, *context, [&sink] { return sink.ended(); });
  Message message;
  bool gone = false;
  while (!gone && reader->Read(&message)) gone = !sink.Write(message);
  if (gone) context->TryCancel();
  const absl::Status status = runtime::GrpcToStatus(reader->Finish());
  return gone ? Gone() : pending.Answer(status);
}

grpc::ServerWriteReactor<job::v1::LogEntry>* JobServiceImpl::Logs(
    grpc::CallbackServerContext* context, const job::v1::LogsRequest* request) {
  return LeadStream<job::v1::LogsRequest, job::v1::LogEntry>(
      context, request, &job::v1::JobService::Stub::Logs,
      [this](ControllerTerm& term, const job::v1::LogsRequest& r, absl::Time,
             StreamSink<job::v1::LogEntry>& sink) { return SendLogs(term, r, sink); });
}

absl::Status JobServiceImpl::SendLogs(ControllerTerm& term, const job::v1::LogsRequest& request,
                                      StreamSink<job::v1::LogEntry>& sink) {
  if (request.tail() < 0) return InvalidArgument("tail: ", request.tail(), " is negative");
  if (!request.job_id().empty()) {
    FRESHET_RETURN_IF_ERROR(term.registry.Get(request.job_id()).status());
  }
  WorkerLogs& log = term.hub->log();
  const LogFilter filter{request.job_id(), request.role(), request.worker()};
  const OwnLog& own = controller_.options().own_log;
  log.TakeOwn(own);
  LogPage page = log.Tail(filter, static_cast<size_t>(request.tail()));
  while (true) {
    for (const job::v1::LogEntry& entry : page.entries) {
      if (!sink.Write(entry)) return Gone();
    }
    if (!request.follow()) return absl::OkStatus();
    if (sink.ended()) return Gone();
    if (controller_.Active().get() != &term) return NotLeading(controller_.Leader());
    log.TakeOwn(own);
    page = log.Next(filter, page.position, kLook);
  }
}

grpc::ServerWriteReactor<job::v1::FileChunk>* JobServiceImpl::ExportCheckpoint(
    grpc::CallbackServerContext* context, const job::v1::ExportCheckpointRequest* request) {
  return LeadStream<job::v1::ExportCheckpointRequest, job::v1::FileChunk>(
      context, request, &job::v1::JobService::Stub::ExportCheckpoint,
      [this](ControllerTerm& term, const job::v1::ExportCheckpointRequest& r, absl::Time deadline,
             StreamSink<job::v1::FileChunk>& sink) {
        return SendCheckpoint(term, r, deadline, sink);
      });
}

absl::Status JobServiceImpl::SendCheckpoint(ControllerTerm& term,
                                            const job::v1::ExportCheckpointRequest& request,
                                            absl::Time deadline,
                                            StreamSink<job::v1::FileChunk>& sink) {
  FRESHET_ASSIGN_OR_RETURN(const JobRecord record, term.registry.Get(request.job_id()));
  FRESHET_ASSIGN_OR_RETURN(const std::string address, TrainerOf(term, record));
  trainer::v1::ExportCheckpointRequest wanted;
  wanted.set_job_id(request.job_id());
  wanted.set_version(request.version());
  return controller_.ports().trainers.ExportCheckpoint(
      address, wanted, std::min(kLongestExport, deadline - absl::Now()),
      [&sink](const trainer::v1::CheckpointChunk& chunk) {
        job::v1::FileChunk out;
        out.set_path(chunk.path());
        out.set_data(chunk.data());
        return sink.Write(out) ? absl::OkStatus() : Gone();
      });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListSamples(grpc::CallbackServerContext* context,
                                                      const job::v1::ListSamplesRequest* request,
                                                      job::v1::ListSamplesReply* reply) {
  return runtime::RunUnary(
      executor_, context, request, reply,
      [this](const job::v1::ListSamplesRequest& r,
             const runtime::CallContext&) -> absl::StatusOr<job::v1::ListSamplesReply> {
        auto found = reader_.Samples(r);
        if (!found.ok()) return Explained(found.status(), r.job_id());
        return found;
      });
}

}  // namespace freshet
