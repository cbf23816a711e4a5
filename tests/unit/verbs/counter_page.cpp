// SPDX-License-Identifier: BSD-3-Clause
// Prints docs/counters.md from the counter tables of all components.
#include <cstdio>

#include "odp/regions/counters.hpp"
#include "stack/abi/tree/standard_counters.hpp"
#include "stack/verbs/objects/counter_list.hpp"

int main() {
  using namespace faultline;
  std::puts(
      "# Counters\n\n"
      "A program reads the counters of a device with `faultline_query_counters`; any process of the user "
      "reads\n"
      "them by DPDK's telemetry, `/faultline/counters,DEVICE`, with `/` for `.` in the names. "
      "`faultline-perf`\n"
      "prints them at its prompt (`show odp`, `show stats`). `faultline export` gives those of all programs "
      "to\n"
      "Prometheus. They are sums of all cores.\n\n"
      "`cm.` counters exist in programs that run under `faultline-run`. This page is made from the tables "
      "in\n"
      "the code; `meson test counter-page` compares the two.\n\n"
      "| name | unit | kind | what it counts |\n|---|---|---|---|");
  for (const verbs::CounterText& text : verbs::counter_texts())
    std::printf("| `%s` | %.*s | %s | %s |\n", text.name.c_str(), static_cast<int>(text.unit.size()),
                text.unit.data(), name_of(text.kind).data(), text.help.c_str());
  std::puts(
      "\n## Of one region\n\n"
      "`faultline_query_mr_counters` returns these.\n\n"
      "| name | unit | kind | what it counts |\n|---|---|---|---|");
  for (const auto& row : odp::kRegionCounterRows)
    std::printf("| `%s` | %s | %s | %s |\n", row.name.data(), row.unit.data(), name_of(row.kind).data(),
                row.help.data());
  std::puts(
      "\n## In sysfs\n\n"
      "A program under `faultline-run` finds its device's counters where tools look for those of a NIC: "
      "below\n"
      "`/sys/class/infiniband/DEVICE/ports/1`. `hw_counters` has a file for each counter above, and those "
      "of\n"
      "the second half of this table, with the names of mlx5 and rxe. The values are the sums of all "
      "running\n"
      "programs of this user that have the device open and publish its state "
      "([seeing.md](seeing/seeing.md)). "
      "Those\n"
      "of other programs are at most about a second old. A counter of a NIC that Faultline does not count "
      "has no file.\n\n"
      "`rdma statistic` shows the counters that have the names of drivers, and those of each QP and each "
      "region:\n"
      "[rdma-tool.md](seeing/rdma-tool.md).\n\n"
      "| file | sum of | divided by | what it counts |\n|---|---|---|---|");
  for (const abi::StandardCounter& counter : abi::standard_counters())
    std::printf("| `%s` | `%s` | %u | %s |\n", counter.file.data(), counter.sources.data(), counter.divisor,
                counter.help.data());
  return 0;
}
