#include "services/runtime/reward_flags.h"

#include "services/runtime/endpoint_options.h"

namespace freshet::runtime {

void AddPythonRewardsFlag(const Command& app, std::string& address) {
  app.Add(
         "--python-rewards", address,
         "loopback HOST:PORT of freshet.reward_server, whose functions jobs may use; default: none")
      .Check([](const std::string& given) {
        return given.empty() || IsLoopback(given)
                   ? std::string()
                   : given + " is not a loopback address: run the server on the same machine";
      });
}

}  // namespace freshet::runtime
