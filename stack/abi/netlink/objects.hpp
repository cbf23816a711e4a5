// SPDX-License-Identifier: BSD-3-Clause
// The objects of a device as entries of RDMA netlink: which tables there are, and the attributes of a row of
// a status segment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stack/abi/netlink/message.hpp"
#include "stack/status/segment_reader.hpp"

namespace faultline::abi {

struct ObjectEntry {
  uint32_t number = 0;           ///< by which a program asks for the object
  std::optional<uint32_t> port;  ///< 0: none yet; nullopt: objects of this kind have no port
  std::function<void(NetlinkMessage&)> put;
};

struct ObjectKind {
  std::string_view name;          ///< in the summary; empty: not in it
  uint16_t table, entry, number;  ///< attributes
  std::vector<ObjectEntry> (*list)(const status::SegmentReader& process);
};

// In the order of the kernel's summary (enum rdma_restrack_type).
extern const ObjectKind kPds, kCqs, kQps, kCmIds, kMrs, kContexts, kSrqs;
[[nodiscard]] std::span<const ObjectKind* const> kinds_of_summary();

/// Counters of a QP; each QP has a counter of its own, with the QPN as its number.
extern const ObjectKind kQpCounters;
/// Counters of an MR.
extern const ObjectKind kMrCounters;

/// Puts one counter into a table of counters.
void put_counter(NetlinkMessage& message, std::string_view name, uint64_t value);

}  // namespace faultline::abi
