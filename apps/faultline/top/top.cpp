// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/top/top.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "apps/faultline/top/device_state.hpp"
#include "apps/faultline/top/names.hpp"
#include "apps/faultline/top/screen.hpp"
#include "apps/faultline/top/state_json.hpp"
#include "apps/faultline/top/tables.hpp"
#include "stack/base/exit_status.hpp"

namespace faultline::cli {
namespace {

void print(const Table& table) {
  std::printf("%s\n", table.header.c_str());
  for (const std::string& row : table.rows) std::printf("%s\n", row.c_str());
}

std::string clock_text(uint64_t realtime_ns) {
  constexpr uint64_t kNsPerSecond = 1'000'000'000;
  const auto seconds = static_cast<time_t>(realtime_ns / kNsPerSecond);
  tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%F %T", &parts);
  return text.data();
}

void print_state(const TopState& state, const TopOptions& options) {
  print(device_table(state));
  std::printf("\n");
  const std::vector<QpReference> qps = select_qps(state, {});
  if (options.post_mortem) {
    for (const DeviceState& device : state.devices)
      std::printf("%s of %s (process %u) was opened at %s; its last state was published %s after that\n",
                  device.device.c_str(), device.program.c_str(), device.pid,
                  clock_text(device.created_realtime_ns).c_str(),
                  device.updated_ns > device.created_ns
                      ? duration_text(device.updated_ns - device.created_ns).c_str()
                      : "0 ns");
    std::printf("\n");
    for (const QpReference& qp : qps) {
      for (const std::string& line : qp_page(state, qp)) std::printf("%s\n", line.c_str());
      std::printf("\n");
    }
  } else {
    print(qp_table(qps));
    std::printf("\n");
  }
  print(region_table(state));
  std::printf("\n");
  print(fault_table(state));
  if (const Table failures = failure_table(state); failures.total != 0) {
    std::printf("\n");
    print(failures);
  }
  if (!options.post_mortem) return;
  std::printf("\n");
  print(counter_table(state));
}

}  // namespace

int run_top(const TopOptions& options) {
  const Choice choice{options.device, options.pid, options.post_mortem};
  if (!options.once && !options.as_json && !options.post_mortem) {
    if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0 || std::getenv("TERM") == nullptr) {
      std::fprintf(stderr, "faultline: top: there is no terminal to draw on; give --once or --json\n");
      return kUsageExit;
    }
    constexpr double kMsPerSecond = 1e3;
    show_screen(choice, static_cast<unsigned>(options.seconds * kMsPerSecond));
    return 0;
  }
  TopState state = read_state(choice);
  if (!options.post_mortem && !state.devices.empty()) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
    TopState later = read_state(choice);
    set_rates(later, state);
    state = std::move(later);
  }
  if (options.as_json)
    std::printf("%s\n", json_of(state).dump(2).c_str());
  else
    print_state(state, options);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace faultline::cli
