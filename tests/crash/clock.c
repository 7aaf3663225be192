/* Preloaded into a program, this library makes the clock of the calendar jump: every reading is shifted by up
 * to ten days in either direction. The clocks that only run forward are left alone, as when somebody sets the
 * time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static time_t jump(void) {
  static atomic_uint state = 20170220u;
  const unsigned number = atomic_fetch_add(&state, 2654435769u) >> 8;
  return (time_t)(number % (20u * 86400u)) - 10 * 86400;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = NEXT(clock_gettime)(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += jump();
  return result;
}

int gettimeofday(struct timeval* now, void* zone) {
  const int result = NEXT(gettimeofday)(now, zone);
  if (result == 0) now->tv_sec += jump();
  return result;
}

time_t time(time_t* now) {
  const time_t shifted = NEXT(time)(NULL) + jump();
  if (now != NULL) *now = shifted;
  return shifted;
}
