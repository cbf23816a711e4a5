// SPDX-License-Identifier: BSD-3-Clause
// Prints the figures of recovery and congestion control as text, or compares them with the file kept in the
// tree.
//   sim_snapshot             print the figures
//   sim_snapshot --check F   compare with file F: on a difference print those lines and exit with status 1
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sim/flows/streams.hpp"

namespace faultline::sim {
namespace {

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

void add_recovery(std::vector<std::string>& lines) {
  lines.emplace_back("# 1 MiB WRITEs over 10 Gb/s, 10 us each way: goodput against that of a whole wire");
  lines.emplace_back("# loss  window  recovery   goodput  Gb/s  resent  time-outs");
  for (const uint32_t window : {32U, 256U}) {
    for (const bool selective : {false, true}) {
      double whole = 0;
      for (const double loss : {0.0, 0.0001, 0.001, 0.01, 0.05}) {
        StreamScript script;
        script.fabric = ten_gigabit_fabric();
        script.fabric.a_to_b.loss_ratio = script.fabric.b_to_a.loss_ratio = loss;
        for (HostScript* host : {&script.fabric.a, &script.fabric.b}) {
          host->core.window_packets = window;
          host->core.selective_ack = selective;
        }
        script.duration_ns = 60'000'000;
        const StreamResult result = run_streams(script);
        if (loss <= 0) whole = result.total;
        lines.push_back(line("%.4f  %6u  %-9s  %6.3f  %6.3f  %6llu  %3llu%s", loss, window,
                             selective ? "selective" : "go-back-n", result.total / whole, result.total,
                             static_cast<unsigned long long>(result.retransmitted),
                             static_cast<unsigned long long>(result.timeouts), result.error.c_str()));
      }
    }
  }
}

void add_congestion(std::vector<std::string>& lines) {
  lines.emplace_back(
      "# two streams from 40 Gb/s into a switch of 10 Gb/s with 256 KiB, marking from 10 to 100 KB");
  lines.emplace_back("# algorithm  first  second  Gb/s  share  mean queue  peak queue  drops  CNPs");
  for (const auto algorithm : {transport::CongestionAlgorithm::none, transport::CongestionAlgorithm::dcqcn,
                               transport::CongestionAlgorithm::swift}) {
    StreamScript script;
    script.fabric = ten_gigabit_fabric();
    LinkScript& wire = script.fabric.a_to_b;
    wire.picoseconds_per_byte = 200;
    wire.bottleneck_picoseconds_per_byte = 800;
    wire.queue_limit_bytes = 256 << 10;
    wire.mark_from_bytes = 10'000;
    wire.mark_all_bytes = 100'000;
    wire.mark_ratio = 0.1;
    for (HostScript* host : {&script.fabric.a, &script.fabric.b}) host->core.congestion.algorithm = algorithm;
    script.streams = 2;
    script.stagger_ns = 2'000'000;
    script.duration_ns = 200'000'000;
    const StreamResult result = run_streams(script);
    const double least = std::min(result.gigabits_per_s[0], result.gigabits_per_s[1]);
    const double most = std::max(result.gigabits_per_s[0], result.gigabits_per_s[1]);
    const char* const names[] = {"none", "dcqcn", "swift"};
    lines.push_back(line("%-6s  %6.3f  %6.3f  %6.3f  %5.3f  %8.0f  %8llu  %6llu  %6llu%s",
                         names[static_cast<size_t>(algorithm)], result.gigabits_per_s[0],
                         result.gigabits_per_s[1], result.total, least / most, result.mean_queue_bytes,
                         static_cast<unsigned long long>(result.peak_queue_bytes),
                         static_cast<unsigned long long>(result.queue_drops),
                         static_cast<unsigned long long>(result.notifications), result.error.c_str()));
  }
}

std::vector<std::string> read(const char* path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) lines.push_back(text);
  return lines;
}

int compare(const std::vector<std::string>& now, const std::vector<std::string>& kept) {
  int different = 0;
  for (size_t i = 0; i < std::max(now.size(), kept.size()); ++i) {
    const std::string is = i < now.size() ? now[i] : "";
    const std::string was = i < kept.size() ? kept[i] : "";
    if (is == was) continue;
    ++different;
    std::printf("was %s\nis  %s\n", was.c_str(), is.c_str());
  }
  if (different != 0)
    std::printf("%d lines differ; where that is meant, keep what sim_snapshot prints\n", different);
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace faultline::sim

int main(int argc, char** argv) {
  std::vector<std::string> lines;
  faultline::sim::add_recovery(lines);
  faultline::sim::add_congestion(lines);
  if (argc == 3 && std::string(argv[1]) == "--check")
    return faultline::sim::compare(lines, faultline::sim::read(argv[2]));
  for (const std::string& text : lines) std::printf("%s\n", text.c_str());
  return 0;
}
