// SPDX-License-Identifier: BSD-3-Clause
// The kernel's list of this process's mappings, for hooks. A descriptor is kept from the start of the first
// domain, since the process may later be unable to open one (chroot, a full descriptor table). Uses direct
// system calls only: no memory is allocated and nothing here is a cancellation point.
#pragma once

#include <cstdint>

#include "odp/mappings/mapping_list.hpp"

namespace faultline::odp {

/// Opens the descriptor that OwnMappings uses, unless this process has it. Any thread.
void keep_own_mappings();

class OwnMappings {
 public:
  /// Uses the kept descriptor or, if the program has closed it, opens one.
  OwnMappings();
  OwnMappings(const OwnMappings&) = delete;
  OwnMappings& operator=(const OwnMappings&) = delete;
  ~OwnMappings();

  /// False if the kernel's list is unavailable.
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  /// Calls visit(facts) for each mapping of a file or of shared memory that ends after `from`, by address,
  /// until visit returns false.
  template <typename Visit>
  void for_each_file_from(uint64_t from, Visit visit) const {
    for_each_file_mapping(descriptor_, from, &visit, [](void* context, const MappingFacts& facts) {
      return (*static_cast<Visit*>(context))(facts);
    });
  }

 private:
  int descriptor_;
  bool is_kept_ = true;
};

/// Returns the end of the contiguous mapped pages from `start`; `start` itself if it is not mapped.
[[nodiscard]] uint64_t end_of_mapped(uint64_t start);

}  // namespace faultline::odp
