#include "services/worker/worker_flags.h"

#include <string>
#include <vector>

#include "base/command_line.h"
#include "gtest/gtest.h"

namespace freshet::runtime {
namespace {

// The flags of a child process with the arguments.
DatastoreFlags Parsed(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"child"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  CommandLine app("a child", "child");
  DatastoreFlags flags;
  AddDatastoreFlags(app, flags);
  EXPECT_FALSE(app.Parse(static_cast<int>(argv.size()), argv.data()).has_value());
  return flags;
}

void ExpectSame(const DatastoreFlags& flags) {
  const DatastoreFlags child = Parsed(DatastoreArguments(flags));
  EXPECT_EQ(child.address, flags.address);
  EXPECT_EQ(child.username, flags.username);
  EXPECT_EQ(child.password_file, flags.password_file);
  EXPECT_EQ(child.tls.enabled, flags.tls.enabled);
  EXPECT_EQ(child.tls.ca, flags.tls.ca);
  EXPECT_EQ(child.tls.cert, flags.tls.cert);
  EXPECT_EQ(child.tls.key, flags.tls.key);
  EXPECT_EQ(child.tls.server_name, flags.tls.server_name);
}

TEST(DatastoreArguments, GiveAChildTheSameFlags) {
  ExpectSame({});
  DatastoreFlags flags;
  flags.address = "redis.example:6380";
  flags.username = "trainer";
  flags.password_file = "/run/password";
  flags.tls = {true, "ca.pem", "cert.pem", "key.pem", "redis"};
  ExpectSame(flags);
}

}  // namespace
}  // namespace freshet::runtime
