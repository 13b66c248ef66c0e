// Overrides pthread_create in tests not declared as multithreaded. Only declared tests run under
// TSan, so a wrongly declared test must fail.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" int pthread_create(pthread_t* /*thread*/, const pthread_attr_t* /*attributes*/,
                              void* (* /*start*/)(void*), void* /*argument*/) {
  std::fputs("this test starts a thread: declare it as freshet_test(NAME THREADS ...)\n", stderr);
  std::abort();
}
