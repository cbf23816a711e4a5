// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/memory/dma_buf.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "stack/base/log.hpp"
#include "stack/base/process/fork_generation.hpp"

namespace faultline::verbs {

namespace {

/// DMA_BUF_MAGIC of linux/magic.h, which older headers lack.
constexpr auto kDmaBufMagic = static_cast<decltype(statfs::f_type)>(0x444d4142);

/// The exporter's name, from proc_pid_fdinfo(5).
std::string exporter_of(int descriptor) {
  std::ifstream file("/proc/self/fdinfo/" + std::to_string(descriptor));
  constexpr std::string_view kKey = "exp_name:";
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, kKey.size(), kKey) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", kKey.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "an unknown exporter";
}

/// Logs once: a program may try each of its buffers.
void log_unmappable(int descriptor, int error) {
  static std::atomic<bool> is_logged{false};
  if (is_logged.exchange(true, std::memory_order_relaxed)) return;
  log().warn(
      "ibv_reg_dmabuf_mr: a dma-buf of {} cannot be mapped ({}), and the device copies by the CPU: let the "
      "program copy such memory to the host's first (UCX_IB_GPU_DIRECT_RDMA=no, NCCL_NET_GDR_LEVEL=LOC)",
      exporter_of(descriptor), std::strerror(error));
}

/// linux/dma-buf.h: "The ioctl may return EAGAIN or EINTR", and is then called again.
int sync_access(int descriptor, uint64_t flags) {
  dma_buf_sync sync{flags};
  while (::ioctl(descriptor, DMA_BUF_IOCTL_SYNC, &sync) != 0)
    if (errno != EAGAIN && errno != EINTR) return errno;
  return 0;
}

/// Returns 0 or an errno.
int check(const DmaBuf::Part& part, uint64_t page_bytes) {
  struct statfs system {};
  if (::fstatfs(part.descriptor, &system) != 0) return errno;
  if (system.f_type != kDmaBufMagic) return EINVAL;
  const off_t end = ::lseek(part.descriptor, 0, SEEK_END);
  if (end < 0 || part.length_bytes == 0) return EINVAL;
  // ibv_reg_mr(3): "It must have the same page offset as offset."
  if (part.offset_bytes % page_bytes != part.iova % page_bytes) return EINVAL;
  const auto size_bytes = static_cast<uint64_t>(end);
  return part.offset_bytes > size_bytes || part.length_bytes > size_bytes - part.offset_bytes ? EINVAL : 0;
}

}  // namespace

int DmaBuf::map(const Part& part, std::shared_ptr<DmaBuf>& result) {
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (const int error = check(part, page_bytes); error != 0) return error;
  const size_t start_bytes = part.offset_bytes % page_bytes;
  const size_t mapped_bytes = start_bytes + part.length_bytes;
  void* const mapping =
      ::mmap(nullptr, mapped_bytes, part.is_written ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
             part.descriptor, static_cast<off_t>(part.offset_bytes - start_bytes));
  if (mapping == MAP_FAILED) {
    if (errno == EACCES || errno == ENOMEM) return errno;
    log_unmappable(part.descriptor, errno);
    return EOPNOTSUPP;
  }
  // The program may close its own.
  const int descriptor = ::fcntl(part.descriptor, F_DUPFD_CLOEXEC, 0);
  struct stat facts {};
  int error = descriptor < 0 || ::fstat(descriptor, &facts) != 0 ? errno : 0;
  const uint64_t flags = part.is_written ? DMA_BUF_SYNC_RW : DMA_BUF_SYNC_READ;
  if (error == 0) error = sync_access(descriptor, DMA_BUF_SYNC_START | flags);
  if (error == 0) {
    try {
      result = std::make_shared<DmaBuf>(descriptor, facts.st_ino, mapping, mapped_bytes, start_bytes, flags);
      return 0;
    } catch (const std::bad_alloc&) {
      static_cast<void>(sync_access(descriptor, DMA_BUF_SYNC_END | flags));
      error = ENOMEM;
    }
  }
  if (descriptor >= 0) ::close(descriptor);
  ::munmap(mapping, mapped_bytes);
  return error;
}

DmaBuf::DmaBuf(int descriptor, uint64_t inode, void* mapping, size_t mapped_bytes, size_t start_bytes,
               uint64_t sync_flags)
    : descriptor_(descriptor),
      inode_(inode),
      mapping_(mapping),
      mapped_bytes_(mapped_bytes),
      start_bytes_(start_bytes),
      sync_flags_(sync_flags),
      generation_(fork_generation()) {}

DmaBuf::~DmaBuf() {
  ::munmap(mapping_, mapped_bytes_);
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0 || facts.st_ino != inode_) return;
  if (generation_ == fork_generation())
    static_cast<void>(sync_access(descriptor_, DMA_BUF_SYNC_END | sync_flags_));
  ::close(descriptor_);
}

namespace {

int open_udmabuf() {
  return ::open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
}

}  // namespace

bool ExportableMemory::is_possible() {
  const int device = open_udmabuf();
  if (device >= 0) ::close(device);
  return device >= 0;
}

std::unique_ptr<ExportableMemory> ExportableMemory::make(size_t length_bytes) {
  const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t whole_bytes = (length_bytes + page_bytes - 1) / page_bytes * page_bytes;
  const int memfd = ::memfd_create("faultline-device-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memfd < 0) return nullptr;
  void* mapping = MAP_FAILED;
  // linux/udmabuf.h: a memfd that could shrink is refused.
  if (::ftruncate(memfd, static_cast<off_t>(whole_bytes)) == 0 &&
      ::fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
    mapping = ::mmap(nullptr, whole_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  std::unique_ptr<ExportableMemory> result;
  if (mapping != MAP_FAILED) result.reset(new (std::nothrow) ExportableMemory(memfd, mapping, whole_bytes));
  if (result != nullptr) return result;
  const int error = mapping == MAP_FAILED ? errno : ENOMEM;
  if (mapping != MAP_FAILED) ::munmap(mapping, whole_bytes);
  ::close(memfd);
  errno = error;
  return nullptr;
}

ExportableMemory::ExportableMemory(int memfd, void* mapping, size_t length_bytes)
    : memfd_(memfd), mapping_(mapping), length_bytes_(length_bytes) {}

ExportableMemory::~ExportableMemory() {
  ::munmap(mapping_, length_bytes_);
  ::close(memfd_);
}

int ExportableMemory::export_descriptor() const {
  const int device = open_udmabuf();
  if (device < 0) return -1;
  udmabuf_create wanted{};
  wanted.memfd = static_cast<uint32_t>(memfd_);
  wanted.flags = UDMABUF_FLAGS_CLOEXEC;
  wanted.size = length_bytes_;
  const int descriptor = ::ioctl(device, UDMABUF_CREATE, &wanted);
  const int error = errno;
  ::close(device);
  errno = error;
  return descriptor;
}

}  // namespace faultline::verbs
