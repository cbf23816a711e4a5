// SPDX-License-Identifier: BSD-3-Clause
// The command line: `faultline-perf [device options] [-- test options]`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace faultline::perf {

enum class Op : uint8_t { write, write_imm, read, send, ud_send };
enum class Mode : uint8_t { bandwidth, latency };
enum class RegionKind : uint8_t { pinned, odp };
enum class Touch : uint8_t { warm, cold, prefetch };

[[nodiscard]] const char* name_of(Op op);
[[nodiscard]] const char* name_of(Mode mode);
[[nodiscard]] const char* name_of(RegionKind kind);
[[nodiscard]] const char* name_of(Touch touch);

/// What is measured. The client decides, the server is told.
struct TestOptions {
  std::vector<Op> ops{Op::write};
  Mode mode = Mode::bandwidth;
  std::vector<uint64_t> sizes_bytes{64};
  uint32_t qps = 1;
  uint32_t depth = 0;                                ///< 0: by the size, Plan::depth_for
  uint32_t mtu_bytes = 0;                            ///< 0: the largest that the port carries
  std::vector<RegionKind> regions{RegionKind::odp};  ///< two take turns
  Touch touch = Touch::warm;
  uint32_t idle_ms = 0;
  bool verify = false;
  double seconds = 2.0;
  uint64_t iterations = 0;  ///< 0: by time
  bool limits = false;
  bool interactive = false;
  std::string json_path;
};

struct Options {
  bool demo = false;
  bool server = false;
  bool both = false;      ///< server and client in this process, a device each
  std::string client_of;  ///< the server's host
  std::string config_path;
  std::string device;
  std::string listen_address;
  uint16_t tcp_port = 18515;
  bool keep_serving = false;
  bool capabilities = false;  ///< print what the device can do, and nothing else
  TestOptions test;
};

/// Parses; prints one line (or the help) and exits with 2 (or 0) where there is nothing to run.
[[nodiscard]] Options parse_options(int argc, char** argv);

}  // namespace faultline::perf
