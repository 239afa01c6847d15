// hop CPU CPU: prints how many nanoseconds a cache line takes from one processor to the other and back. The host of a virtual machine may
// move its processors, and what is handed from one to the other then costs more or less.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TRIES 20
#define HOPS 1000
#define LIMIT 500000000ull

static atomic_long ball; // odd: the other thread is to return it

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void stay_on(const char *cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(atoi(cpu), &set);
  sched_setaffinity(0, sizeof set, &set);
}

static void *give_back(void *cpu) {
  stay_on(cpu);
  for (;;) {
    long seen = atomic_load(&ball);
    if (seen & 1) atomic_store(&ball, seen + 1);
  }
  return NULL;
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  pthread_t other;
  if (pthread_create(&other, NULL, give_back, arguments[2])) return 1;
  stay_on(arguments[1]);
  uint64_t shortest = UINT64_MAX, deadline = now() + LIMIT; // the shortest: others may have had the processor meanwhile
  for (int i = 0; i < TRIES && now() < deadline; i++) {
    uint64_t began = now();
    for (int k = 0; k < HOPS; k++) {
      long next = atomic_fetch_add(&ball, 1) + 2;
      while (atomic_load(&ball) != next) continue;
    }
    uint64_t each = (now() - began) / HOPS;
    if (each < shortest) shortest = each;
  }
  printf("%llu\n", (unsigned long long)shortest);
}
