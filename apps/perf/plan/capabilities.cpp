// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/plan/capabilities.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include <unistd.h>

#include "apps/perf/plan/resources.hpp"

namespace faultline::perf {

namespace {

// From newer rdma-core's device_cap_flags_ex (IB_UVERBS_DEVICE_FLUSH_GLOBAL, _ATOMIC_WRITE).
constexpr uint64_t kCapFlushGlobal = uint64_t{1} << 38;
constexpr uint64_t kCapAtomicWrite = uint64_t{1} << 40;

struct Operation {
  const char* name;
  uint32_t bit;          ///< bit of the transport's ODP capabilities
  uint64_t device_flag;  ///< if `bit` is 0: bit of device_cap_flags_ex
  bool of_datagrams;     ///< exists on UD; of_unreliable: on UC; all exist on RC and XRC (IBA 9.2.1 table 38,
                         ///< annex A19)
  bool of_unreliable;
  const char* while_a_page_is_missing;
};

constexpr std::array kOperations{
    Operation{"SEND, local side", IBV_ODP_SUPPORT_SEND, 0, true, true,
              "nothing goes out until the page is there"},
    Operation{
        "receive", IBV_ODP_SUPPORT_RECV, 0, true, true,
        "faulted in when it is posted; else the message waits, then RNR NAK (RC, XRC) or is lost (UC, UD)"},
    Operation{"receive, shared queue", IBV_ODP_SUPPORT_SRQ_RECV, 0, true, true, "as a receive"},
    Operation{"WRITE", IBV_ODP_SUPPORT_WRITE, 0, false, true,
              "local: nothing goes out; remote: the message waits, then RNR NAK (RC, XRC) or is lost (UC)"},
    Operation{"READ", IBV_ODP_SUPPORT_READ, 0, false, false,
              "local: faulted in before it is asked for; remote: its answer waits, others go on"},
    Operation{"atomics", IBV_ODP_SUPPORT_ATOMIC, 0, false, false, "executed once, when the page is writable"},
    Operation{"ATOMIC WRITE", 0, kCapAtomicWrite, false, false, "as an atomic"},
    Operation{"FLUSH", 0, kCapFlushGlobal, false, false,
              "touches no page: what was written is there already"},
    Operation{"bind, invalidate", 0, IBV_DEVICE_MEM_WINDOW_TYPE_2B, false, false,
              "touches no page: accesses through the window fault as the region's"},
};

struct Transport {
  const char* name;
  uint32_t caps;
  bool is_datagram;
  bool is_reliable;
};

const char* why_not(const Operation& operation, const Transport& transport) {
  if (transport.is_datagram && !operation.of_datagrams) return "no such operation on UD";
  if (!transport.is_reliable && !operation.of_unreliable) return "no such operation on UC";
  return "not offered by this device";
}

void print_transport(const Transport& transport, uint64_t device_flags) {
  for (const Operation& operation : kOperations) {
    const bool exists = (operation.of_datagrams || !transport.is_datagram) &&
                        (operation.of_unreliable || transport.is_reliable || transport.is_datagram);
    const bool offered = operation.bit != 0 ? (transport.caps & operation.bit) != 0
                                            : exists && (device_flags & operation.device_flag) != 0;
    std::printf("%-4s  %-22s %-4s %s\n", transport.name, operation.name, offered ? "yes" : "-",
                offered ? operation.while_a_page_is_missing : why_not(operation, transport));
  }
}

}  // namespace

int print_capabilities(const Options& options) {
  std::string config_path = options.config_path;
  if (config_path.empty() && std::getenv("FAULTLINE_CONFIG") == nullptr) {
    config_path = (std::filesystem::temp_directory_path() / "faultline-capabilities-XXXXXX").string();
    const int file = mkstemp(config_path.data());
    constexpr std::string_view kAnyDevice =
        "[[device]]\nname = \"faultline0\"\nip = \"198.18.0.1/24\"\n[device.port]\nkind = \"ring\"\nwire = "
        "\"w\"\nside = \"a\"\n";
    if (file < 0 ||
        write(file, kAnyDevice.data(), kAnyDevice.size()) != static_cast<ssize_t>(kAnyDevice.size()))
      throw std::runtime_error("cannot write " + config_path);
    close(file);
  }
  const PerfDevice device(config_path, options.device, false);
  if (config_path != options.config_path) std::filesystem::remove(config_path);
  ibv_device_attr_ex attributes{};
  if (ibv_query_device_ex(device.context(), nullptr, &attributes) != 0) return 1;
  const uint64_t general = attributes.odp_caps.general_caps;
  const auto& per_transport = attributes.odp_caps.per_transport_caps;
  std::printf("on-demand paging: %s\n", (general & IBV_ODP_SUPPORT) != 0 ? "yes" : "no");
  std::printf("implicit regions (address 0, length SIZE_MAX): %s\n",
              (general & IBV_ODP_SUPPORT_IMPLICIT) != 0 ? "yes, locally and remotely" : "no");
  std::printf("\n%-4s  %-22s %-4s %s\n", "QP", "operation", "ODP", "while a page is missing, or why not");
  const uint64_t flags = attributes.device_cap_flags_ex;
  print_transport({"RC", per_transport.rc_odp_caps, false, true}, flags);
  print_transport({"UC", per_transport.uc_odp_caps, false, false}, flags);
  print_transport({"UD", per_transport.ud_odp_caps, true, false}, flags);
  print_transport({"XRC", attributes.xrc_odp_caps, false, true}, flags);
  std::printf("\nFLUSH with persistent visibility: -  no memory of a process is kept across a power loss\n");
  return 0;
}

}  // namespace faultline::perf
