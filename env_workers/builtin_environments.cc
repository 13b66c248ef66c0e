#include <memory>

#include "base/log.h"
#include "env_workers/calculator.h"
#include "env_workers/environment.h"
#include "env_workers/guess_number.h"

namespace freshet {

const EnvironmentRegistry& BuiltinEnvironments() {
  static const EnvironmentRegistry& registry = *[] {
    auto made = std::make_unique<EnvironmentRegistry>();
    FRESHET_CHECK(
        made->Add({"guess_number",
                   "Find a secret number by guesses that are answered higher or lower.",
                   GuessNumber::OptionNames(), [] { return std::make_unique<GuessNumber>(); }})
            .ok());
    FRESHET_CHECK(made->Add({"calculator",
                             "Evaluate an expression; [EXPRESSION] calls a calculator.",
                             Calculator::OptionNames(),
                             [] { return std::make_unique<Calculator>(); },
                             {{"prompt", "1+1="}}})
                      .ok());
    return made.release();
  }();
  return registry;
}

}  // namespace freshet
