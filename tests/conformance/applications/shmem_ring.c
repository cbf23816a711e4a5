// SPDX-License-Identifier: BSD-3-Clause
// OpenSHMEM around a ring: puts, gets, atomics and collectives on a symmetric heap of more than 16 MiB. Every
// value is compared.
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { words = 1 << 20, rounds = 8, atomics = 500 };

static long sync_area[SHMEM_REDUCE_SYNC_SIZE];
static long broadcast_area[SHMEM_BCAST_SYNC_SIZE];
static long reduce_work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static long sum_in;
static long sum_out;
static long counter;

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static long value_of(int rank, int round, int index) {
  return ((long)rank << 40) ^ ((long)round << 32) ^ index;
}

static void must(int holds, const char* what) {
  if (holds) return;
  printf("WRONG on rank %d: %s\n", shmem_my_pe(), what);
  shmem_global_exit(1);
}

int main(void) {
  for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; ++i) sync_area[i] = SHMEM_SYNC_VALUE;
  for (int i = 0; i < SHMEM_BCAST_SYNC_SIZE; ++i) broadcast_area[i] = SHMEM_SYNC_VALUE;
  shmem_init();
  const int me = shmem_my_pe();
  const int ranks = shmem_n_pes();
  const int next = (me + 1) % ranks;
  const int previous = (me + ranks - 1) % ranks;
  long* source = shmem_malloc(words * sizeof(long));
  long* target = shmem_malloc(words * sizeof(long));
  long* fetched = malloc(words * sizeof(long));
  must(source && target && fetched, "memory");

  double put_s = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < words; ++i) source[i] = value_of(me, round, i);
    shmem_barrier_all();
    const double began_s = now_s();
    shmem_long_put(target, source, words, next);
    shmem_barrier_all();
    put_s += now_s() - began_s;
    for (int i = 0; i < words; ++i) must(target[i] == value_of(previous, round, i), "a put");
    shmem_long_get(fetched, source, words, next);
    for (int i = 0; i < words; ++i) must(fetched[i] == value_of(next, round, i), "a get");
    shmem_barrier_all();
  }

  for (int i = 0; i < atomics; ++i) shmem_long_atomic_add(&counter, me + 1, 0);
  shmem_barrier_all();
  must(shmem_long_atomic_fetch(&counter, 0) == (long)atomics * ranks * (ranks + 1) / 2, "an atomic add");

  sum_in = me + 1;
  shmem_barrier_all();
  shmem_long_sum_to_all(&sum_out, &sum_in, 1, 0, 0, ranks, reduce_work, sync_area);
  must(sum_out == (long)ranks * (ranks + 1) / 2, "a sum");

  for (int i = 0; i < words; ++i) source[i] = value_of(me, rounds, i);
  shmem_barrier_all();
  shmem_broadcast64(target, source, words, 0, 0, 0, ranks, broadcast_area);
  if (me != 0) {
    for (int i = 0; i < words; ++i) must(target[i] == value_of(0, rounds, i), "a broadcast");
  }
  shmem_barrier_all();
  if (me == 0) printf("figure: put %.0f MB/s a rank\n", (double)rounds * words * sizeof(long) / put_s / 1e6);
  fflush(stdout);
  shmem_finalize();
  return 0;
}
