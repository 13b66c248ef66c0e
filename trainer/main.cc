#include "base/clock.h"
#include "trainer/policy_learner_factory.h"
#include "trainer/service/trainer_process.h"

int main(int argc, char** argv) {
  freshet::PolicyLearnerFactory learners(freshet::SystemClock::Get());
  return freshet::RunTrainerProcess(argc, argv, learners);
}
