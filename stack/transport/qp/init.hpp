// SPDX-License-Identifier: BSD-3-Clause
// Parameters from the verbs layer for creating a QP or an SRQ.
#pragma once

#include <array>
#include <cstdint>
#include <memory_resource>

#include "odp/regions/memory_access.hpp"
#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

class CompletionQueue;
class SharedReceiveQueue;

struct QpInit {
  QpType type = QpType::rc;
  odp::ProtectionDomain domain = 0;
  CompletionQueue* send_cq = nullptr;     ///< outlives the QP
  CompletionQueue* receive_cq = nullptr;  ///< outlives the QP
  uint32_t max_send_wr = 1, max_receive_wr = 1, max_send_sge = 1, max_receive_sge = 1, max_inline_bytes = 0;
  SharedReceiveQueue* srq = nullptr;  ///< replaces the receive ring; of the same core, outlives the QP
  uint32_t xrc_domain = 0;            ///< of an xrc_recv QP: its packets name an SRQ of this domain
  std::pmr::memory_resource* ring_memory = nullptr;  ///< memory of the rings; nullptr: the core's memory
  bool signal_all = false;
  bool blocks_own_multicast = false;  ///< of a UD QP: do not loop back its own multicast packets
  void* user = nullptr;               ///< given back in events
  /// Addresses that posting to the QP reads first. They are prefetched when a send completes, since the
  /// program mostly posts the next one then.
  std::array<const void*, 2> posting_reads{};
};

struct SrqInit {
  odp::ProtectionDomain domain = 0;
  uint32_t max_wr = 1, max_sge = 1;
  uint32_t limit = 0;             ///< raise srq_limit_reached once fewer are posted; 0: never
  CompletionQueue* cq = nullptr;  ///< of an XRC SRQ: the CQ of its receives
  uint32_t xrc_domain = 0;        ///< not 0 for an XRC SRQ
  /// Memory of the ring, until a resize.
  std::pmr::memory_resource* ring_memory = std::pmr::new_delete_resource();
  void* user = nullptr;  ///< given back in events
};

/// Maximum number of QPs of one core in a multicast group.
inline constexpr uint32_t kMaxGroupMembers = 1024;

/// Returns the index of the core that owns a QP.
[[nodiscard]] constexpr uint32_t owner_of(uint32_t qpn, uint32_t core_count) {
  return (qpn & 0xffff) % core_count;
}

}  // namespace faultline::transport
