// SPDX-License-Identifier: BSD-3-Clause
// faultline-perf: measures and verifies RDMA between two Faultline devices, in testpmd's manner.
#include <csignal>
#include <cstdio>
#include <exception>

#include "apps/perf/exchange/exchange.hpp"
#include "apps/perf/exchange/listening_line.hpp"
#include "apps/perf/plan/capabilities.hpp"
#include "apps/perf/plan/options.hpp"
#include "apps/perf/plan/resources.hpp"
#include "apps/perf/prompt/prompt.hpp"
#include "apps/perf/traffic/demo.hpp"
#include "apps/perf/traffic/one_process.hpp"
#include "apps/perf/traffic/server.hpp"
#include "apps/perf/traffic/session.hpp"

namespace {

using namespace faultline::perf;

constexpr int kConnectMs = 10'000;
constexpr int kBadConfig = 2;

int serve(const Options& options) {
  const PerfDevice device(options.config_path, options.device);
  Listener listener(options.listen_address, options.tcp_port);
  std::printf("%s\n", listening_line(listener.port()).c_str());
  std::fflush(stdout);
  do {
    Exchange exchange = listener.accept_client();
    try {
      serve_client(exchange, device);
    } catch (const std::exception& error) {
      if (!options.keep_serving) throw;
      std::fprintf(stderr, "faultline-perf: %s\n", error.what());
    }
  } while (options.keep_serving);
  return 0;
}

int run_client(Exchange& exchange, const PerfDevice& device, const Options& options) {
  ClientSession session(exchange, device, options.test);
  if (options.test.interactive) return run_prompt(session);
  return session.run_batch() ? 0 : 1;
}

int measure(const Options& options) {
  const PerfDevice device(options.config_path, options.device);
  Exchange exchange = Exchange::connect_to(options.client_of, options.tcp_port, kConnectMs);
  return run_client(exchange, device, options);
}

int measure_both(const Options& options) {
  return run_both(options, [&](Exchange& exchange, const PerfDevice& device) {
    return run_client(exchange, device, options);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    if (options.demo) return run_demo();
    if (options.both) return measure_both(options);
    if (options.capabilities) return print_capabilities(options);
    return options.server ? serve(options) : measure(options);
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kBadConfig;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "faultline-perf: %s\n", error.what());
    return 1;
  }
}
