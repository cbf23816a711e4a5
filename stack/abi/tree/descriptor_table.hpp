// SPDX-License-Identifier: BSD-3-Clause
// Descriptors of the program that stand for something of ours: a directory of the device tree, a connection
// manager's channel. The number is a real one (poll, epoll and fcntl know it); what the kernel has behind it
// is only as good as it needs to be.
#pragma once

#include <cstddef>
#include <memory>

#include <sys/types.h>

#include "stack/abi/tree/file_view.hpp"

namespace faultline::abi {

class OpenFile {
 public:
  explicit OpenFile(Sight opened) : sight(std::move(opened)) {}
  virtual ~OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  /// write(2): how many bytes, or a negative errno.
  [[nodiscard]] virtual ssize_t write(const void* bytes, size_t length);
  /// The program is about to close a number of it.
  virtual void before_close() {}

  const Sight sight;
};

/// Costs a load where `descriptor` is none of ours.
[[nodiscard]] std::shared_ptr<OpenFile> find_descriptor(int descriptor);
/// False where the number is larger than the table.
[[nodiscard]] bool add_descriptor(int descriptor, std::shared_ptr<OpenFile> file);
/// The program closed it, or had it replaced. What was there goes when nobody uses it any more.
void remove_descriptor(int descriptor);
/// All from `first` to `last`.
void remove_descriptors(unsigned first, unsigned last);

}  // namespace faultline::abi
