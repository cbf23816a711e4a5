// SPDX-License-Identifier: BSD-3-Clause
// Memory of another device, as a dma-buf (ibv_reg_dmabuf_mr(3)). The library maps it, since its engines copy
// by the CPU. The mapping belongs to the library: no program unmaps it, and its pages are never pinned. If
// the exporter takes the memory away, a copy meets SIGBUS, and the access is a violation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace faultline::verbs {

class DmaBuf {
 public:
  struct Part {
    int descriptor = -1;
    uint64_t offset_bytes = 0;
    size_t length_bytes = 0;
    uint64_t iova = 0;  ///< of the same offset within a page as the part
    bool is_written = false;
  };
  /// Maps a part, and tells the exporter that the CPU accesses it from now on. Returns 0 or an errno: EBADF;
  /// EINVAL for a descriptor of something else, or a part that is empty or ends beyond the dma-buf; EACCES
  /// for a descriptor that may not be written; EOPNOTSUPP if the exporter permits no mapping, with a line in
  /// the log; ENOMEM; the exporter's own.
  [[nodiscard]] static int map(const Part& part, std::shared_ptr<DmaBuf>& result);

  /// Takes over the descriptor and the mapping.
  DmaBuf(int descriptor, uint64_t inode, void* mapping, size_t mapped_bytes, size_t start_bytes,
         uint64_t sync_flags);
  /// In a forked child only the mapping ends: the access of the parent goes on.
  ~DmaBuf();
  DmaBuf(const DmaBuf&) = delete;
  DmaBuf& operator=(const DmaBuf&) = delete;

  /// The address of the part's first byte.
  [[nodiscard]] void* address() const { return static_cast<uint8_t*>(mapping_) + start_bytes_; }

 private:
  const int descriptor_;
  const uint64_t inode_;  ///< of the dma-buf: a program that closes all descriptors may give the number anew
  void* const mapping_;
  const size_t mapped_bytes_;
  const size_t start_bytes_;
  const uint64_t sync_flags_;
  const uint32_t generation_;
};

/// Memory of this process that can be given away as a dma-buf, by Linux's udmabuf.
class ExportableMemory {
 public:
  /// Whether this process may use udmabuf.
  [[nodiscard]] static bool is_possible();
  /// Maps whole pages of zeros. Null with errno: ENOMEM, EMFILE.
  [[nodiscard]] static std::unique_ptr<ExportableMemory> make(size_t length_bytes);

  ExportableMemory(int memfd, void* mapping, size_t length_bytes);
  ~ExportableMemory();
  ExportableMemory(const ExportableMemory&) = delete;
  ExportableMemory& operator=(const ExportableMemory&) = delete;

  [[nodiscard]] uint8_t* memory() const { return static_cast<uint8_t*>(mapping_); }
  /// Returns a new descriptor of the whole memory, which lives until the last one is closed; or -1 with
  /// errno.
  [[nodiscard]] int export_descriptor() const;

 private:
  const int memfd_;
  void* const mapping_;
  const size_t length_bytes_;
};

}  // namespace faultline::verbs
