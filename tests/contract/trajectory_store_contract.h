#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_CONTRACT_H_

// Contract tests of TrajectoryStore and its EvaluationStore for any backend. A backend's test file
// includes this header and instantiates the three suites:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, TrajectoryStoreContract, testing::Values(StoreBackend{...}),
//                            StoreBackendName);
//   INSTANTIATE_TEST_SUITE_P(Memory, TrajectoryStoreCurationContract, ...);
//   INSTANTIATE_TEST_SUITE_P(Memory, EvaluationStoreContract, ...);

#include "tests/contract/evaluation_store_contract.h"
#include "tests/contract/trajectory_store_batch_contract.h"
#include "tests/contract/trajectory_store_calls_contract.h"
#include "tests/contract/trajectory_store_curation_contract.h"
#include "tests/contract/trajectory_store_divergence_contract.h"
#include "tests/contract/trajectory_store_fixture.h"
#include "tests/contract/trajectory_store_lease_contract.h"
#include "tests/contract/trajectory_store_lease_failure_contract.h"
#include "tests/contract/trajectory_store_prompt_contract.h"
#include "tests/contract/trajectory_store_puts_contract.h"
#include "tests/contract/trajectory_store_recovery_contract.h"
#include "tests/contract/trajectory_store_revoke_contract.h"
#include "tests/contract/trajectory_store_row_contract.h"

namespace freshet {

inline std::string StoreBackendName(const testing::TestParamInfo<StoreBackend>& info) {
  return info.param.name;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_CONTRACT_H_
