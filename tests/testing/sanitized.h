#ifndef FRESHET_TESTS_TESTING_SANITIZED_H_
#define FRESHET_TESTS_TESTING_SANITIZED_H_

namespace freshet {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// Property tests divide their number of random histories by this under a sanitizer, which is slow.
inline constexpr int kHistoryDivisor = kSanitized ? 5 : 1;

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_SANITIZED_H_
