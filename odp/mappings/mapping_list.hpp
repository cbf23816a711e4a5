// SPDX-License-Identifier: BSD-3-Clause
// One mapping of this process, as the kernel lists them (proc(5), /proc/pid/maps). Allocates nothing.
#pragma once

#include <cstdint>

#include "odp/mappings/page_survey.hpp"

namespace faultline::odp {

struct MappingFacts {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t offset_bytes = 0;  ///< in its file, if it has one
  uint64_t inode = 0;
  Backing backing = Backing::unknown;
  bool is_segment = false;  ///< of System V shared memory (shmat(2))
};

/// Finds the mapping that holds `address`; `maps` is a descriptor of /proc/self/maps. False if there is
/// none.
[[nodiscard]] bool find_mapping(int maps, uint64_t address, MappingFacts& facts);
/// As find_mapping, or finds the next mapping after the address.
[[nodiscard]] bool find_mapping_from(int maps, uint64_t address, MappingFacts& facts);

/// Returns false to end the walk.
using MappingVisit = bool (*)(void* context, const MappingFacts& facts);
/// Visits each mapping of a file or of shared memory that ends after `from`, by address.
void for_each_file_mapping(int maps, uint64_t from, void* context, MappingVisit visit);

}  // namespace faultline::odp
