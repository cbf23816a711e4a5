// SPDX-License-Identifier: BSD-3-Clause
// Descriptors of the program that represent our objects: a directory of the device tree, or a connection
// manager's channel. The number is a real descriptor, so poll, epoll and fcntl work; the kernel object is
// only a placeholder.
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

  /// Implements write(2). Returns the bytes written, or a negative errno.
  [[nodiscard]] virtual ssize_t write(const void* bytes, size_t length);
  /// Called before the program closes one of its descriptors of this file.
  virtual void before_close() {}

  const Sight sight;
};

/// Costs one load if `descriptor` is not ours.
[[nodiscard]] std::shared_ptr<OpenFile> find_descriptor(int descriptor);
/// Returns false if the number exceeds the table.
[[nodiscard]] bool add_descriptor(int descriptor, std::shared_ptr<OpenFile> file);
/// The program closed the descriptor or replaced it. The object is destroyed with its last reference.
void remove_descriptor(int descriptor);
/// Removes all from `first` to `last`.
void remove_descriptors(unsigned first, unsigned last);

}  // namespace faultline::abi
