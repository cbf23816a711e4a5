// SPDX-License-Identifier: BSD-3-Clause
// What verbs states when it creates a QP or an SRQ.
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
  SharedReceiveQueue* srq = nullptr;  ///< instead of a receive ring; of the same core, outlives the QP
  uint32_t xrc_domain = 0;            ///< of an xrc_recv QP: its packets name an SRQ of this domain
  std::pmr::memory_resource* ring_memory = nullptr;  ///< of its rings alone; nullptr: the core's own
  bool signal_all = false;
  bool blocks_own_multicast =
      false;             ///< of a UD QP: what it sends to a group that it is in does not come back
  void* user = nullptr;  ///< given back in events
  /// What posting to the QP reads first: fetched when a send completes, since the next one is mostly posted
  /// then.
  std::array<const void*, 2> posting_reads{};
};

struct SrqInit {
  odp::ProtectionDomain domain = 0;
  uint32_t max_wr = 1, max_sge = 1;
  uint32_t limit = 0;             ///< raise srq_limit_reached once fewer are posted; 0: never
  CompletionQueue* cq = nullptr;  ///< of an XRC SRQ: where its receives complete
  uint32_t xrc_domain = 0;        ///< not 0 for an XRC SRQ
  std::pmr::memory_resource* ring_memory = std::pmr::new_delete_resource();  ///< of its ring, until a resize
  void* user = nullptr;                                                      ///< given back in events
};

/// QPs of one core that a multicast group may have.
inline constexpr uint32_t kMaxGroupMembers = 1024;

/// Which of a device's cores owns a QP.
[[nodiscard]] constexpr uint32_t owner_of(uint32_t qpn, uint32_t core_count) {
  return (qpn & 0xffff) % core_count;
}

}  // namespace faultline::transport
