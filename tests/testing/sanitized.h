#ifndef FRESHET_TESTS_TESTING_SANITIZED_H_
#define FRESHET_TESTS_TESTING_SANITIZED_H_

namespace freshet {

// Property tests divide their number of random histories by this under a sanitizer, which is slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kHistoryDivisor = 5;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr int kHistoryDivisor = 5;
#else
inline constexpr int kHistoryDivisor = 1;
#endif
#else
inline constexpr int kHistoryDivisor = 1;
#endif

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_SANITIZED_H_
