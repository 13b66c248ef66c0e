// Stands in front of the C library's pthread_create in tests that are not declared to have threads.
// TSan watches only those that are: one that is declared wrongly would go unwatched.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" int pthread_create(pthread_t* /*thread*/, const pthread_attr_t* /*attributes*/,
                              void* (* /*start*/)(void*), void* /*argument*/) {
  std::fputs("this test starts a thread: declare it as freshet_test(NAME THREADS ...)\n", stderr);
  std::abort();
}
