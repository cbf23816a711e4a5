// SPDX-License-Identifier: BSD-3-Clause
// Writers of a recording's rings. A writer neither waits nor allocates; the memory is a mapped file, so what
// is written survives the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "stack/record/record.hpp"

namespace faultline::record {

/// Writes connections. Any thread.
class ConnectionWriter {
 public:
  ConnectionWriter(ConnectionRow* rows, uint64_t* written) : rows_(rows), written_(written) {}
  void add(const ConnectionRow& row) {
    const uint64_t number = std::atomic_ref(*written_).fetch_add(1, std::memory_order_relaxed);
    rows_[number % kConnectionRows] = row;
  }

 private:
  ConnectionRow* rows_;
  uint64_t* written_;
};

/// Writes control calls. Any thread, one after the other: a lock, since no data path calls it.
class ControlWriter {
 public:
  ControlWriter(ControlRow* rows, uint64_t* written) : rows_(rows), written_(written) {}
  void add(const ControlRow& row) {
    const std::lock_guard lock(mutex_);
    rows_[next_ % kControlRows] = row;
    std::atomic_ref(*written_).store(++next_, std::memory_order_release);
  }

 private:
  std::mutex mutex_;
  ControlRow* const rows_;
  uint64_t* const written_;
  uint64_t next_ = 0;  ///< guarded by mutex_
};

/// Writes one ring. One thread at a time.
class RingWriter {
 public:
  RingWriter(Record* records, RingHeader& header, ConnectionWriter connections)
      : records_(records), mask_(header.records - 1), header_(header), connections_(connections) {}

  /// Returns the record in the ring, which its writer may still complete.
  Record& add(const Record& record) {
    // The ring is larger than the caches: what is written soon is fetched now.
    constexpr uint64_t kAhead = 16;
    __builtin_prefetch(&records_[(next_ + kAhead) & mask_], 1);
    Record& slot = records_[next_ & mask_];
    slot = record;
    std::atomic_ref(header_.written).store(++next_, std::memory_order_release);
    return slot;
  }
  [[nodiscard]] ConnectionWriter& connections() { return connections_; }

 private:
  Record* records_;
  uint64_t mask_;
  uint64_t next_ = 0;
  RingHeader& header_;
  ConnectionWriter connections_;
};

}  // namespace faultline::record
