#ifndef FRESHET_SERVICES_RUNTIME_HTTP_MESSAGE_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_MESSAGE_H_

#include <boost/beast/core/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <string>

#include "services/runtime/http_server.h"

// HTTP messages as pure functions.

namespace freshet::runtime {

using HttpRequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;
using HttpRequestMessage = boost::beast::http::request<boost::beast::http::string_body>;

// Why the server refuses a request. Status 0: it does not.
struct HttpRefusal {
  int status = 0;
  std::string message{};  // what is wrong, with the limit if one is exceeded
};

// For a request with which the parser failed.
HttpRefusal RefusalOf(const HttpRequestParser& parser, boost::beast::error_code failure,
                      const HttpLimits& limits);
// From a request's complete header.
HttpRefusal RefusalOf(const HttpRequestParser& parser, const HttpLimits& limits);
HttpResponse RefusalAnswer(const HttpRefusal& refusal, const HttpLimits& limits);
// Request line and headers are too long.
HttpRefusal HeaderRefusal(const HttpLimits& limits);

// Whether the client waits for "100 Continue" before it sends the body.
bool ExpectsContinue(const HttpRequestMessage& message);
HttpRequest ToHttpRequest(HttpRequestMessage message);

std::string ReasonPhrase(int status);
// Status line and headers of an answer with a body of known length.
std::string ResponseHead(const HttpResponse& response, size_t length, bool keep_alive);
// The same for an answer of unknown length, which is chunked or ends with the connection.
std::string StreamHead(const HttpResponse& response, bool chunked, bool keep_alive);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_MESSAGE_H_
