#ifndef FRESHET_TESTS_TESTING_REGISTRY_TEXT_H_
#define FRESHET_TESTS_TESTING_REGISTRY_TEXT_H_

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "tests/testing/metrics_text.h"

namespace freshet {

inline MetricsText Scrape(prometheus::Registry& registry) {
  return MetricsText(prometheus::TextSerializer().Serialize(registry.Collect()));
}

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_REGISTRY_TEXT_H_
