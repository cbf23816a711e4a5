// SPDX-License-Identifier: BSD-3-Clause
// The file of a recording, mapped into the process that writes it. Its size is constant, and its blocks are
// allocated when it is created: a full disk is an error then, and no signal later.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stack/record/ring_writer.hpp"

namespace faultline::record {

inline constexpr uint64_t kDefaultRingBytes = uint64_t{64} << 20;
inline constexpr uint64_t kLeastRingBytes = uint64_t{1} << 20;
inline constexpr uint64_t kMostRingBytes = uint64_t{4096} << 20;

class Recording {
 public:
  struct Wanted {
    std::string file;
    uint64_t ring_bytes = kDefaultRingBytes;  ///< of each core; rounded down to a power of two
    uint32_t cores = 1;
    std::string device;
    /// The times of the records are virtual and begin at the Unix epoch. The file then depends on the records
    /// alone, not on process and clock.
    bool is_virtual = false;
  };

  /// Creates the file, readable by its owner alone. If it exists, the name gets the process's number after
  /// it: several devices, and the children of a fork, write files of their own. Returns nullptr with one line
  /// in `error`, without a prefix.
  [[nodiscard]] static std::unique_ptr<Recording> create(const Wanted& wanted, std::string& error);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  [[nodiscard]] RingWriter& ring_of_core(uint32_t core) { return rings_[core]; }
  [[nodiscard]] ControlWriter& controls() { return *controls_; }
  [[nodiscard]] const std::string& file() const { return file_; }

  /// Adds a record of a thread that is no engine's, at the present time. Any thread, also in a signal
  /// handler; a reader may find an older record in its place until it is whole.
  void add_other(Record record);

 private:
  Recording() = default;

  std::string file_;
  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<RingWriter> rings_;  ///< one a core
  std::unique_ptr<ControlWriter> controls_;
  Record* other_records_ = nullptr;
  RingHeader* other_ring_ = nullptr;
};

}  // namespace faultline::record
