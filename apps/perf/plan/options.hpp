// SPDX-License-Identifier: BSD-3-Clause
// The command line: `faultline-perf [device options] [-- test options]`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace faultline::perf {

enum class Op : uint8_t { write, write_imm, read, send, ud_send };
enum class Mode : uint8_t { bandwidth, latency };
enum class RegionKind : uint8_t { pinned, odp };
enum class Touch : uint8_t { warm, cold, prefetch };

/// The words of the command line, each with its value.
[[nodiscard]] const std::map<std::string, Op>& ops_by_name();
[[nodiscard]] const std::map<std::string, Mode>& modes_by_name();
[[nodiscard]] const std::map<std::string, RegionKind>& regions_by_name();
[[nodiscard]] const std::map<std::string, Touch>& touches_by_name();

[[nodiscard]] const char* name_of(Op op);
[[nodiscard]] const char* name_of(Mode mode);
[[nodiscard]] const char* name_of(RegionKind kind);
[[nodiscard]] const char* name_of(Touch touch);

constexpr uint32_t kMaxQps = 16384;
constexpr uint32_t kMaxDepth = 8192;
constexpr uint32_t kMaxIdleMs = 60'000;
constexpr double kMinSeconds = 0.01;
constexpr double kMaxSeconds = 86400.0;
constexpr std::array<uint32_t, 5> kMtusBytes{256, 512, 1024, 2048, 4096};

/// ACK timeout of an RC QP: 4.096 us * 2^n, 0: none (IBA 9.7.6.1.3, ibv_modify_qp(3)). The default is 537 ms:
/// a process of a busy machine may have no CPU for longer than the 67 ms that many programs choose, and a lap
/// over 10,000 QPs takes 0.2 s. Lost packets are found by probes, long before.
constexpr uint8_t kDefaultAckTimeout = 17, kMaxAckTimeout = 31;

/// What is measured. The client chooses it and sends it to the server.
struct TestOptions {
  std::vector<Op> ops{Op::write};
  Mode mode = Mode::bandwidth;
  std::vector<uint64_t> sizes_bytes{64};
  uint32_t qps = 1;
  uint32_t depth = 0;      ///< 0: Plan::depth_for(size)
  uint32_t mtu_bytes = 0;  ///< 0: the largest that both ports carry
  uint8_t ack_timeout = kDefaultAckTimeout;
  std::vector<RegionKind> regions{RegionKind::odp};  ///< with two kinds, the runs alternate
  Touch touch = Touch::warm;
  uint32_t idle_ms = 0;
  bool verify = false;
  double seconds = 2.0;
  bool seconds_given =
      false;                ///< on the command line; otherwise a run of the prompt lasts until it is stopped
  uint64_t iterations = 0;  ///< 0: limited by `seconds`
  bool limits = false;
  bool interactive = false;
  std::string json_path;
};

struct Options {
  bool demo = false;
  bool server = false;
  bool both = false;      ///< server and client in this process, on one device each
  std::string client_of;  ///< host name of the server
  std::string config_path;
  std::string device;
  std::string listen_address;
  uint16_t tcp_port = 18515;
  bool keep_serving = false;
  bool capabilities = false;  ///< only print the device's ODP capabilities
  TestOptions test;
};

/// Parses a message size, "64", "4k", "1m". Returns nullopt if it is not a number of bytes from 1 to 1G.
[[nodiscard]] std::optional<uint64_t> size_from(const std::string& text);

/// Returns one line with the reason why these options exclude each other and what to change, or "".
[[nodiscard]] std::string conflict_of(const TestOptions& test);

/// Parses the command line. Prints the help and exits with 0, or prints one line and exits with 2 on a bad
/// option.
[[nodiscard]] Options parse_options(int argc, char** argv);

}  // namespace faultline::perf
