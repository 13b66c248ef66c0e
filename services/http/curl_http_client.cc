#include "services/http/curl_http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/http/token_file.h"

namespace freshet {
namespace {

constexpr size_t kMaxHeaderBytes = 64 << 10;
constexpr absl::Duration kConnectTimeout = absl::Seconds(3);
// Older connections are not reused, so that servers that are added behind an address get calls.
constexpr long kMaxConnectionSeconds = 60;

// Filled by the callbacks of a call.
struct Received {
  size_t max_bytes = 0;
  size_t header_bytes = 0;
  bool too_large = false;
  std::string body;
};

size_t OnBody(char* data, size_t size, size_t count, void* to) {
  auto* const received = static_cast<Received*>(to);
  const size_t bytes = size * count;
  if (received->body.size() + bytes > received->max_bytes) {
    received->too_large = true;
    return 0;  // aborts the call
  }
  received->body.append(data, bytes);
  return bytes;
}

size_t OnHeader(char*, size_t size, size_t count, void* to) {
  auto* const received = static_cast<Received*>(to);
  received->header_bytes += size * count;
  if (received->header_bytes > kMaxHeaderBytes) {
    received->too_large = true;
    return 0;
  }
  return size * count;
}

int OnProgress(void* cancel, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::stop_token*>(cancel)->stop_requested() ? 1 : 0;
}

struct HeaderList {
  curl_slist* list = nullptr;
  ~HeaderList() { curl_slist_free_all(list); }
  void Add(const std::string& line) { list = curl_slist_append(list, line.c_str()); }
};

absl::Status ToStatus(CURLcode code, const Received& received, const char* details) {
  const std::string text = StrCat(curl_easy_strerror(code), *details == '\0' ? "" : ": ", details);
  if (received.header_bytes > kMaxHeaderBytes)
    return DataLoss("the reply's headers are larger than ", kMaxHeaderBytes, " bytes");
  if (received.too_large)
    return DataLoss("the reply is larger than ", received.max_bytes, " bytes");
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return StatusOf(absl::StatusCode::kDeadlineExceeded, "no answer in time: ", text);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
      return StatusOf(absl::StatusCode::kPermissionDenied, text);
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
      return FailedPrecondition(text);
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_BAD_CONTENT_ENCODING:
      return DataLoss(text);
    default:
      return StatusOf(absl::StatusCode::kUnavailable, text);
  }
}

long Millis(absl::Duration time) {
  return static_cast<long>(std::clamp<int64_t>(absl::ToInt64Milliseconds(time), 1, 600'000));
}

}  // namespace

struct CurlHttpClient::Handle {
  Handle() : curl(curl_easy_init()) {}
  ~Handle() {
    if (curl != nullptr) curl_easy_cleanup(curl);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  CURL* const curl;
};

absl::StatusOr<std::unique_ptr<CurlHttpClient>> CurlHttpClient::Create(CurlHttpOptions options) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) return Internal("libcurl: ", curl_easy_strerror(ready));
  const bool tls = options.server.starts_with("https://");
  if (!tls && !options.server.starts_with("http://")) {
    return InvalidArgument("server: ", options.server.substr(0, 80), " is not an HTTP address");
  }
  if (tls && options.ca_file.empty()) return InvalidArgument("ca_file: https needs roots");
  if (!tls && !options.token_file.empty()) {
    return InvalidArgument("token_file: a token is not sent over plaintext");
  }
  return std::unique_ptr<CurlHttpClient>(new CurlHttpClient(std::move(options)));
}

CurlHttpClient::CurlHttpClient(CurlHttpOptions options) : options_(std::move(options)) {}

CurlHttpClient::~CurlHttpClient() = default;

std::unique_ptr<CurlHttpClient::Handle> CurlHttpClient::Take() {
  MutexLock lock(mu_);
  if (idle_.empty()) return std::make_unique<Handle>();
  std::unique_ptr<Handle> handle = std::move(idle_.back());
  idle_.pop_back();
  return handle;
}

void CurlHttpClient::GiveBack(std::unique_ptr<Handle> handle) {
  MutexLock lock(mu_);
  if (idle_.size() < options_.max_idle) idle_.push_back(std::move(handle));
}

absl::StatusOr<HttpReply> CurlHttpClient::Send(const HttpCall& call) {
  HeaderList headers;
  headers.Add("Accept: application/json");
  headers.Add("Expect:");
  if (!call.content_type.empty()) headers.Add("Content-Type: " + call.content_type);
  if (!options_.token_file.empty()) {
    const absl::StatusOr<std::string> token = ReadToken(options_.token_file);
    if (!token.ok()) return NothingSent(token.status());
    headers.Add("Authorization: Bearer " + *token);
  }
  std::unique_ptr<Handle> handle = Take();
  CURL* const curl = handle->curl;
  if (curl == nullptr) return ResourceExhausted("cannot create a libcurl handle");
  Received received;
  received.max_bytes = call.max_reply_bytes;
  char details[CURL_ERROR_SIZE] = {};
  const std::string url = options_.server + call.path;
  const bool tls = options_.server.starts_with("https://");

  curl_easy_reset(curl);  // keeps connections open
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call.method.c_str());
  if (!call.body.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call.body.c_str());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.list);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, Millis(call.deadline));
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                   Millis(std::min(call.deadline, kConnectTimeout)));
  curl_easy_setopt(curl, CURLOPT_MAXLIFETIME_CONN, kMaxConnectionSeconds);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, tls ? "https" : "http");
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "freshet");
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &received);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &received);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, details);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &OnProgress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &call.cancel);
  if (tls) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, options_.ca_file.c_str());
    curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);
    curl_easy_setopt(curl, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  }
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  long sent = 0;
  curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &sent);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (code == CURLE_ABORTED_BY_CALLBACK && call.cancel.stop_requested()) {
    const absl::Status cancelled = absl::CancelledError("the call was cancelled");
    return sent == 0 ? NothingSent(cancelled) : cancelled;
  }
  if (code != CURLE_OK) {
    const absl::Status error = ToStatus(code, received, details);
    return sent == 0 ? NothingSent(error) : error;
  }
  GiveBack(std::move(handle));
  return HttpReply{static_cast<int>(status), std::move(received.body)};
}

}  // namespace freshet
