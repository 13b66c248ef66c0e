#include "tests/rollout/server_engine/transfer_workers.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/digest.h"
#include "base/str_cat.h"
#include "collective/nccl_communicator.h"
#include "rollout/server_engine/server_protocol.h"

namespace freshet {
namespace {

constexpr absl::Duration kWorkersTimeout = absl::Minutes(5);

// Calls `rank` for each on a thread of its own. Returns the first error, "" if there is none.
std::string OnAllRanks(size_t ranks, const std::function<absl::Status(size_t)>& rank) {
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] { statuses[i] = rank(i); });
  }
  threads.clear();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return Message(status);
  }
  return "";
}

}  // namespace

TransferWorkers::TransferWorkers(const std::string& address, std::string library)
    : library_(std::move(library)),
      thread_([this, address](const std::stop_token& stop) { Run(stop, address); }) {}

TransferWorkers::~TransferWorkers() {
  thread_.request_stop();
  Group group;
  {
    const MutexLock lock(mu_);
    group = group_;
  }
  for (const auto& rank : group) rank->Abort("the test ends");
  thread_.join();
}

void TransferWorkers::FailNext(const std::string& what, const std::string& error) {
  const MutexLock lock(mu_);
  faults_[what] = error;
}

int TransferWorkers::groups() const {
  const MutexLock lock(mu_);
  return groups_;
}

std::vector<ReceivedWeights> TransferWorkers::updates() const {
  const MutexLock lock(mu_);
  return updates_;
}

void TransferWorkers::Run(const std::stop_token& stop, const std::string& address) {
  const auto http = runtime::OpenHttpCalls(address);
  if (!http.ok()) return;
  BufferedCalls calls(**http);
  const auto stopped = [&stop] {
    return stop.stop_requested() ? absl::AbortedError("the test ends") : absl::OkStatus();
  };
  while (!stop.stop_requested()) {
    runtime::HttpCall get = GetCall("/fake/transfer");
    get.timeout = kWorkersTimeout;
    const auto text = calls.Await(std::move(get), stopped);
    if (!text.ok()) return;
    const Json work = Json::parse(*text);
    Json result = Do(work.at("what").get<std::string>(), work.at("info"), stop);
    result["call"] = work.at("call");
    if (!calls.Await(PostCall("/fake/transfer", result.dump()), stopped).ok()) return;
  }
}

TransferWorkers::Json TransferWorkers::Do(const std::string& what, const Json& info,
                                          const std::stop_token& stop) {
  std::string error = TakeFault(what);
  ReceivedWeights received;
  if (what == "init" && error.empty()) error = Join(info, stop);
  if (what == "update") {
    const bool fail = !error.empty();
    const std::string failed = Receive(info, fail, received);
    if (!fail) error = failed;
  }
  if (what == "update" && error.empty()) {
    const MutexLock lock(mu_);
    updates_.push_back(received);
  }
  return {{"error", error}, {"sha256", Sha256Hex(received.bytes)}};
}

std::string TransferWorkers::TakeFault(const std::string& what) {
  const MutexLock lock(mu_);
  const auto found = faults_.find(what);
  return found == faults_.end() ? "" : faults_.extract(found).mapped();
}

std::string TransferWorkers::Join(const Json& info, const std::stop_token& stop) {
  {
    const MutexLock lock(mu_);
    group_.clear();
  }
  const auto library = NcclLibrary::Load({library_, library_});
  if (!library.ok()) return Message(library.status());
  std::string id;
  if (!absl::Base64Unescape(info.at("nccl_unique_id_b64").get<std::string>(), &id) ||
      id.size() != NcclUniqueId{}.bytes.size()) {
    return "nccl_unique_id_b64 must decode to 128 bytes";
  }
  if (info.at("packed") != true) return "the fake only takes packed tensors";
  buffer_bytes_ = info.at("packed_buffer_size_bytes").get<size_t>();
  const int offset = info.at("rank_offset").get<int>();
  const int size = info.at("world_size").get<int>();
  Group group(static_cast<size_t>(size - offset));
  std::string error = OnAllRanks(group.size(), [&](size_t worker) -> absl::Status {
    NcclOptions options;
    std::copy(id.begin(), id.end(), options.id.bytes.begin());
    options.rank = offset + static_cast<int>(worker);
    options.size = size;
    options.device = options.rank;
    options.connect_timeout = kWorkersTimeout;
    options.stop = stop;
    options.operation_bytes = std::numeric_limits<size_t>::max();
    auto connected = ConnectNccl(*library, options);
    if (!connected.ok()) return connected.status();
    group[worker] = *std::move(connected);
    const std::stop_callback stopped(stop, [&] { group[worker]->Abort("the test ends"); });
    float one = 1;
    return group[worker]->AllReduce({&one, 1}, kWorkersTimeout);
  });
  if (!error.empty()) return error;
  const MutexLock lock(mu_);
  group_ = std::move(group);
  ++groups_;
  return "";
}

std::string TransferWorkers::Receive(const Json& info, bool fail, ReceivedWeights& received) {
  Group group;
  {
    const MutexLock lock(mu_);
    group = group_;
  }
  if (group.empty()) return "NCCL weight transfer not initialized.";
  info.at("names").get_to(received.names);
  const auto shapes = info.at("shapes").get<std::vector<std::vector<size_t>>>();
  size_t sum = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (info.at("dtype_names").at(i) != "bfloat16") return "the fake only takes bfloat16";
    size_t bytes = 2;
    for (const size_t dimension : shapes[i]) bytes *= dimension;
    sum += bytes;
    if (sum > buffer_bytes_) received.broadcasts.push_back(std::exchange(sum, 0));
  }
  if (sum > 0) received.broadcasts.push_back(sum);
  std::vector<std::string> bytes(group.size());
  std::string error = OnAllRanks(group.size(), [&](size_t worker) -> absl::Status {
    for (const size_t size : received.broadcasts) {
      std::vector<std::byte> data(size);
      const absl::Status status = group[worker]->Broadcast(data, 0, kWorkersTimeout);
      if (!status.ok()) return status;
      bytes[worker].append(reinterpret_cast<const char*>(data.data()), size);
      if (fail) break;
    }
    return absl::OkStatus();
  });
  received.bytes = bytes.front();
  if (error.empty() && std::ranges::count(bytes, received.bytes) != std::ssize(bytes)) {
    error = "the workers have received different bytes";
  }
  return error;
}

}  // namespace freshet
