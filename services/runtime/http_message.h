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

// The status that refuses a request with which the parser failed.
int RefusalOf(const HttpRequestParser& parser, boost::beast::error_code failure,
              const HttpLimits& limits);
// The status that refuses a request from its complete header. 0: it is read to its end and served.
int RefusalOf(const HttpRequestParser& parser, const HttpLimits& limits);
// The answer with such a status.
HttpResponse RefusalAnswer(int status, const HttpLimits& limits);

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
