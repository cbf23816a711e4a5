// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/traffic/one_process.hpp"

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <faultline/faultline.h>
#include <sched.h>

#include "apps/perf/traffic/server.hpp"

namespace faultline::perf {

namespace {

constexpr const char* kHost = "127.0.0.1";
constexpr int kConnectMs = 10'000;

std::vector<int> allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  return cpus;
}

/// Pins this thread; threads that it starts later inherit the affinity. With a single CPU both sides share
/// it.
void stay_on_cpu(const std::vector<int>& cpus, size_t side) {
  if (cpus.size() < 2) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus[side], &one);
  sched_setaffinity(0, sizeof one, &one);
}

std::vector<std::string> device_names(const std::string& config_path) {
  if (!config_path.empty() && faultline_configure(config_path.c_str()) != 0)
    throw ConfigError(faultline_last_error());
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) names.emplace_back(ibv_get_device_name(list[i]));
  if (list != nullptr) ibv_free_device_list(list);
  return names;
}

}  // namespace

int run_both(const Options& options, const Measure& measure) {
  const std::vector<std::string> names = device_names(options.config_path);
  if (names.size() < 2) throw ConfigError("--both: each side needs a device of its own, two in all");
  const std::vector<int> cpus = allowed_cpus();
  stay_on_cpu(cpus, 0);
  const PerfDevice served("", names[0]);
  stay_on_cpu(cpus, 1);
  const PerfDevice measured("", names[1]);

  Listener listener(kHost, 0);
  // Connects before the server thread starts: any later failure closes the connection, which ends the server.
  auto exchange = std::make_unique<Exchange>(Exchange::connect_to(kHost, listener.port(), kConnectMs));
  std::exception_ptr server_failure;
  std::thread server([&] {
    try {
      stay_on_cpu(cpus, 0);
      Exchange accepted = listener.accept_client();
      serve_client(accepted, served);
    } catch (...) {
      server_failure = std::current_exception();
    }
  });
  std::exception_ptr failure;
  int status = 0;
  try {
    status = measure(*exchange, measured);
  } catch (...) {
    failure = std::current_exception();
  }
  exchange.reset();
  server.join();
  if (failure) std::rethrow_exception(failure);
  if (server_failure) std::rethrow_exception(server_failure);
  return status;
}

}  // namespace faultline::perf
