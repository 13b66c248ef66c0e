#include "services/runtime/http_request.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace freshet::runtime {
namespace {

using State = HttpParse::State;

TEST(HttpRequest, IsReadFromItsHead) {
  const HttpParse get =
      ParseHttpRequest("GET /metrics?name=x HTTP/1.1\r\nHost: a\r\nAccept:\t*/* \r\n\r\n", 8192);
  EXPECT_EQ(get.state, State::kComplete);
  EXPECT_EQ(get.request.path, "/metrics");
  EXPECT_EQ(get.request.query, "name=x");
  EXPECT_EQ(get.request.host, "a");
  EXPECT_FALSE(get.request.head);
  EXPECT_TRUE(ParseHttpRequest("HEAD / HTTP/1.0\r\n\r\n", 8192).request.head);
}

TEST(HttpRequest, IsIncompleteBeforeTheEmptyLine) {
  const std::string whole = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(ParseHttpRequest(whole.substr(0, size), 8192).state, State::kIncomplete) << size;
  }
}

TEST(HttpRequest, RefusesWhatItDoesNotServe) {
  struct Case {
    std::string bytes;
    int status;
  };
  const std::vector<Case> cases = {
      {"POST / HTTP/1.1\r\n\r\n", 405},
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {"GET / HTTP/1.1 x\r\n\r\n", 505},
      {"GET /\r\n\r\n", 400},
      {"\r\n\r\n", 400},
      {"GET http://evil/ HTTP/1.1\r\n\r\n", 400},
      {std::string("GET /\0 HTTP/1.1\r\n\r\n", 20), 400},
      {"GET /\xff HTTP/1.1\r\n\r\n", 400},
      {"G\x01T / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nNoColon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n: empty\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA: b\nB: c\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413},
      {"\x16\x03\x01\x02", 400},
      {std::string(17, 'A'), 400},
      {"GET /" + std::string(8192, 'a'), 431},
      {"GET / HTTP/1.1\r\nA: " + std::string(9000, 'a') + "\r\n\r\n", 431}};
  for (const Case& c : cases) {
    const HttpParse parse = ParseHttpRequest(c.bytes, 8192);
    EXPECT_EQ(parse.state, State::kRefused) << c.bytes.substr(0, 60);
    EXPECT_EQ(parse.status, c.status) << c.bytes.substr(0, 60);
  }
}

TEST(HttpRequest, ZeroContentLengthIsNoBody) {
  EXPECT_EQ(ParseHttpRequest("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 8192).state,
            State::kComplete);
}

TEST(HttpRequest, TakesAnyBytes) {
  const std::string alphabet("GET/ HTP1.\r\n: \0\xff\x7f?#a", 20);
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    std::string bytes = seed % 2 == 0 ? "GET /a HTTP/1.1\r\n" : "";
    const uint64_t size = RandomBits(1, seed) % 64;
    for (uint64_t i = 0; i < size; ++i) bytes += alphabet[RandomBits(2, seed, i) % alphabet.size()];
    const HttpParse parse = ParseHttpRequest(bytes, 48);
    if (parse.state == State::kComplete) {
      EXPECT_EQ(parse.request.path.front(), '/');
    }
    if (parse.state == State::kIncomplete) {
      EXPECT_LT(bytes.size(), 48u);
    }
  }
}

}  // namespace
}  // namespace freshet::runtime
