// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/host/interface_rights.hpp"

#include <linux/capability.h>
#include <spdlog/fmt/fmt.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace faultline::glue {
namespace {

// Frames in a block of net_af_packet's rings, which consist of whole blocks.
constexpr uint32_t kFramesPerBlock = 8;
// A burst of one QP's packets; a smaller ring would lose frames.
constexpr uint32_t kLeastFrames = 64;

bool has_capability(unsigned capability) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
  if (syscall(SYS_capget, &header, sets) != 0) return true;  // unknown: let the driver try
  return (sets[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
}

}  // namespace

// Tries a mapping, since only the kernel knows of CAP_IPC_LOCK in another user namespace. Pages are locked
// when they are populated, and PROT_NONE populates none.
bool may_lock(size_t bytes) {
  void* const place =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_LOCKED, -1, 0);
  if (place == MAP_FAILED) return false;
  munmap(place, bytes);
  return true;
}

std::optional<std::string> missing_rights(std::string_view kind, bool loads_programs) {
  std::string missing;
  const auto want = [&](unsigned capability, const char* name) {
    if (has_capability(capability)) return;
    if (!missing.empty()) missing += ", ";
    missing += name;
  };
  want(CAP_NET_RAW, "CAP_NET_RAW");
  want(CAP_NET_ADMIN, "CAP_NET_ADMIN");
  if (loads_programs && !has_capability(CAP_SYS_ADMIN)) want(CAP_BPF, "CAP_BPF");
  if (missing.empty()) return std::nullopt;
  return fmt::format(
      "a port of kind {} needs {}; run as root or give the program these capabilities (setcap)", kind,
      missing);
}

uint32_t packet_ring_frames(uint32_t most, size_t frame_bytes, uint16_t queue_pairs) {
  const auto bytes_of = [&](uint32_t frames) { return 2 * frame_bytes * frames * queue_pairs; };
  if (may_lock(bytes_of(most))) return most;
  uint32_t fits = 0;
  uint32_t too_many = most / kFramesPerBlock;
  while (too_many - fits > 1) {
    const uint32_t middle = fits + (too_many - fits) / 2;
    (may_lock(bytes_of(middle * kFramesPerBlock)) ? fits : too_many) = middle;
  }
  const uint32_t frames = fits * kFramesPerBlock;
  return frames >= kLeastFrames ? frames : 0;
}

std::string locked_memory_advice(std::string_view need, size_t wanted_bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return fmt::format(
      "{} {} KiB of locked memory, and the limit (RLIMIT_MEMLOCK) is {} KiB; raise it (ulimit -l) or "
      "give the program CAP_IPC_LOCK",
      need, wanted_bytes >> 10, limit.rlim_cur >> 10);
}

}  // namespace faultline::glue
