// SPDX-License-Identifier: BSD-3-Clause
// Two ranks return a message to each other: pingpong BYTES ROUND_TRIPS. Rank 0 prints half round trips in
// microseconds, as JSON. The first and the last byte of each message depend on its number and are compared.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void* left, const void* right) {
  const double a = *(const double*)left;
  const double b = *(const double*)right;
  return (a > b) - (a < b);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int bytes = argc == 3 ? atoi(argv[1]) : 0;
  const int trips = argc == 3 ? atoi(argv[2]) : 0;
  if (ranks != 2 || bytes < 1 || trips < 1) {
    if (rank == 0) fprintf(stderr, "usage, with two ranks: pingpong BYTES ROUND_TRIPS\n");
    MPI_Finalize();
    return 2;
  }
  const int warm_up = trips / 10 + 10;
  char* const message = calloc(1, bytes);
  double* const half_us = malloc(trips * sizeof(double));
  double sum_us = 0;
  int wrong = 0;
  for (int trip = -warm_up; trip < trips; ++trip) {
    const double start = MPI_Wtime();
    if (rank == 0) {
      message[0] = message[bytes - 1] = (char)trip;
      MPI_Send(message, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    }
    MPI_Recv(message, bytes, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const char sent = (char)(rank == 0 ? trip + 1 : trip);
    wrong += message[0] != sent || message[bytes - 1] != sent;
    if (rank == 1) {
      message[0] = message[bytes - 1] = (char)(trip + 1);
      MPI_Send(message, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
    if (trip >= 0) sum_us += half_us[trip] = (MPI_Wtime() - start) * 1e6 / 2;
  }
  qsort(half_us, trips, sizeof(double), compare);
  if (rank == 0)
    printf("{\"p50_us\": %.4f, \"p99_us\": %.4f, \"mean_us\": %.4f}\n", half_us[trips / 2],
           half_us[trips / 100 * 99], sum_us / trips);
  if (wrong != 0) fprintf(stderr, "pingpong: rank %d received %d wrong messages\n", rank, wrong);
  MPI_Finalize();
  return wrong != 0;
}
