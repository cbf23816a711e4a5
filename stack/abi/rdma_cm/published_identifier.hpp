// SPDX-License-Identifier: BSD-3-Clause
// The rows in which an identifier is published for other processes: one in each device that it is bound to.
#pragma once

#include <memory>
#include <vector>

#include "stack/status/rows.hpp"
#include "stack/verbs/objects/published.hpp"

namespace faultline::abi {

struct Identifier;

/// Requires the mutex of CmCore.
class PublishedIdentifier {
 public:
  /// Writes the identifier's present state. Adds its rows when it has got a device: the one of its address,
  /// or all of those on which it listens.
  void write(const Identifier& identifier);
  void withdraw() { rows_.clear(); }

 private:
  std::vector<std::unique_ptr<verbs::Published<status::CmRow>>> rows_;
};

}  // namespace faultline::abi
