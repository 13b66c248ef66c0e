#ifndef FRESHET_WEIGHTS_INPROCESS_TRANSPORT_H_
#define FRESHET_WEIGHTS_INPROCESS_TRANSPORT_H_

#include <memory>
#include <vector>

#include "weights/weight_subscriber.h"
#include "weights/weight_transport.h"

namespace freshet {

// Transport within a process. Engines share the publisher's immutable bytes; nothing is copied.
class InProcessTransport final : public WeightTransport {
 public:
  explicit InProcessTransport(std::vector<std::shared_ptr<WeightSubscriber>> subscribers)
      : subscribers_(std::move(subscribers)) {}

  int64_t Publish(const CommittedWeights& version) override;

 private:
  const std::vector<std::shared_ptr<WeightSubscriber>> subscribers_;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_INPROCESS_TRANSPORT_H_
