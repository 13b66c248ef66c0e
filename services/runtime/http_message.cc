#include "services/runtime/http_message.h"

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/write.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/str_cat.h"

namespace freshet::runtime {
namespace {

namespace http = boost::beast::http;

bool IsServed(http::verb method, const HttpLimits& limits) {
  return method == http::verb::get || method == http::verb::head ||
         (method == http::verb::post && limits.max_body_bytes > 0);
}

const char* Allowed(const HttpLimits& limits) {
  return limits.max_body_bytes > 0 ? "GET, HEAD, POST" : "GET, HEAD";
}

http::response_header<> HeadOf(const HttpResponse& response, bool keep_alive) {
  http::response_header<> head;
  head.version(11);
  head.result(static_cast<unsigned>(response.status));
  if (!keep_alive) head.set(http::field::connection, "close");
  head.set(http::field::content_type, response.content_type);
  head.set("X-Content-Type-Options", "nosniff");
  head.set(http::field::cache_control, "no-store");
  for (const auto& [name, value] : response.headers) head.set(name, value);
  return head;
}

std::string TextOf(const http::response_header<>& head) {
  std::ostringstream text;
  text << head;
  return std::move(text).str();
}

HttpRefusal MethodRefusal(const HttpRequestParser& parser, const HttpLimits& limits) {
  return {405, StrCat("the method ", std::string(parser.get().method_string()),
                      " is not supported, want ", Allowed(limits))};
}

HttpRefusal BodyRefusal(const HttpLimits& limits) {
  if (limits.max_body_bytes == 0) return {413, "requests have no body here"};
  return {413, StrCat("the body exceeds ", limits.max_body_bytes, " bytes")};
}

}  // namespace

HttpRefusal HeaderRefusal(const HttpLimits& limits) {
  return {431, StrCat("request line and headers exceed ", limits.max_request_bytes, " bytes")};
}

HttpRefusal RefusalOf(const HttpRequestParser& parser, boost::beast::error_code failure,
                      const HttpLimits& limits) {
  using http::error;
  if (failure == error::header_limit) return HeaderRefusal(limits);
  if (failure == error::body_limit) {
    return IsServed(parser.get().method(), limits) ? BodyRefusal(limits)
                                                   : MethodRefusal(parser, limits);
  }
  if (failure == error::bad_version) return {505, "the version is not HTTP/1.0 or HTTP/1.1"};
  return {400, StrCat("the request is malformed: ", failure.message())};
}

HttpRefusal RefusalOf(const HttpRequestParser& parser, const HttpLimits& limits) {
  const auto& head = parser.get();
  if (!IsServed(head.method(), limits)) return MethodRefusal(parser, limits);
  if (!parser.is_done() && limits.max_body_bytes == 0) return BodyRefusal(limits);
  if (!parser.is_done() && head.method() != http::verb::post) {
    return {413, "only a POST has a body here"};
  }
  // The end of a body in any other encoding is unknown.
  if (head.count(http::field::transfer_encoding) > 0 && !parser.chunked()) {
    return {501, "the only supported Transfer-Encoding is chunked"};
  }
  if (!head.target().starts_with('/')) return {400, "the request target is not an absolute path"};
  if (head.count(http::field::host) > 1) return {400, "there is more than one header Host"};
  for (const char c : head.target()) {
    if (c <= ' ' || c > '~') return {400, "the request target has a character that is not ASCII"};
  }
  return {};
}

HttpResponse RefusalAnswer(const HttpRefusal& refusal, const HttpLimits& limits) {
  HttpResponse answer = limits.refusal != nullptr ? limits.refusal(refusal.status, refusal.message)
                                                  : HttpResponse{.status = refusal.status,
                                                                 .body = refusal.message + "\n"};
  if (refusal.status == 405) answer.headers.emplace_back("Allow", Allowed(limits));
  return answer;
}

bool ExpectsContinue(const HttpRequestMessage& message) {
  const auto expected = message[http::field::expect];
  return message.version() >= 11 &&
         absl::EqualsIgnoreCase({expected.data(), expected.size()}, "100-continue");
}

HttpRequest ToHttpRequest(HttpRequestMessage message) {
  const std::string_view target(message.target().data(), message.target().size());
  const size_t question = target.find('?');
  HttpRequest request{.path = std::string(target.substr(0, question)),
                      .host = std::string(message[http::field::host]),
                      .method = std::string(message.method_string())};
  if (question != target.npos) request.query = target.substr(question + 1);
  for (const auto& field : message) {
    std::string value(field.value());
    const auto [header, first] =
        request.headers.emplace(absl::AsciiStrToLower(std::string(field.name_string())), value);
    if (!first) header->second = StrCat(header->second, ", ", value);
  }
  request.body = std::move(message.body());
  return request;
}

std::string ReasonPhrase(int status) {
  return std::string(http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status))));
}

std::string ResponseHead(const HttpResponse& response, size_t length, bool keep_alive) {
  auto head = HeadOf(response, keep_alive);
  head.set(http::field::content_length, std::to_string(length));
  return TextOf(head);
}

std::string StreamHead(const HttpResponse& response, bool chunked, bool keep_alive) {
  auto head = HeadOf(response, keep_alive);
  if (chunked) head.set(http::field::transfer_encoding, "chunked");
  return TextOf(head);
}

}  // namespace freshet::runtime
