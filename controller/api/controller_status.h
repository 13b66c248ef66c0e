#ifndef FRESHET_CONTROLLER_API_CONTROLLER_STATUS_H_
#define FRESHET_CONTROLLER_API_CONTROLLER_STATUS_H_

#include <string>
#include <vector>

#include "controller/api/job_reader.h"
#include "services/worker/channel_cache.h"

namespace freshet {

// The status page's view of a cluster. A standby asks the leader for what only the leader knows:
// the workers, and what a job waits for. If the leader does not answer, that part is left out.
// Thread-safe.
class ControllerStatus final : public StatusSource {
 public:
  // Both must outlive it. `channels` connects to other controllers.
  ControllerStatus(const Controller& controller, runtime::ChannelCache& channels)
      : controller_(controller), channels_(channels), reader_(controller) {}

  StatusIdentity Identity() override;
  absl::StatusOr<StatusJobs> List(int limit) override;
  absl::StatusOr<job::v1::Job> Get(const std::string& id) override;
  absl::StatusOr<StatusRows> Metrics(const std::string& id, int64_t after, int64_t limit) override;
  absl::StatusOr<std::vector<std::string>> Samples(const std::string& id, int limit) override;
  absl::StatusOr<job::v1::Cluster> Cluster() override;

 private:
  const Controller& controller_;
  runtime::ChannelCache& channels_;
  const JobReader reader_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_CONTROLLER_STATUS_H_
