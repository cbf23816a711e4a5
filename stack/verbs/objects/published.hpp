// SPDX-License-Identifier: BSD-3-Clause
// The row in which an object is published for other processes, for as long as the object lives.
#pragma once

#include "stack/status/segment_writer.hpp"

namespace faultline::verbs {

template <typename Row>
class Published {
 public:
  Published() = default;
  ~Published() { withdraw(); }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  /// Adds the row. `segment` outlives this object; with nullptr nothing is published.
  void publish(status::SegmentWriter* segment, const Row& row) {
    segment_ = segment;
    if (segment_ != nullptr) index_ = segment_->add(row);
  }
  void withdraw() {
    if (segment_ != nullptr) segment_->remove<Row>(index_);
    segment_ = nullptr;
    index_ = status::kNoRow;
  }
  /// Calls change(Row&). Not for rows that a core writes.
  template <typename Change>
  void update(Change change) {
    if (segment_ != nullptr) segment_->update<Row>(index_, change);
  }
  [[nodiscard]] status::RowIndex index() const { return index_; }

 private:
  status::SegmentWriter* segment_ = nullptr;
  status::RowIndex index_ = status::kNoRow;
};

}  // namespace faultline::verbs
