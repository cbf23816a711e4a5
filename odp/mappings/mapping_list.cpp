// SPDX-License-Identifier: BSD-3-Clause
#include "odp/mappings/mapping_list.hpp"

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace faultline::odp {
namespace {

// Newer than the headers of Debian 12 (Linux 6.11, include/uapi/linux/fs.h).
struct ProcmapQuery {
  uint64_t size, query_flags, query_addr;
  uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
  uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  uint64_t vma_name_addr, build_id_addr;
};
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr uint64_t kCoveringOrNext = 0x10;
constexpr uint64_t kFileBacked = 0x20;
constexpr uint64_t kSmallPageBytes = 4096;

bool is_segment_name(std::string_view name) {
  return name.starts_with("/SYSV");
}

Backing backing_of(std::string_view name, uint64_t inode, uint64_t page_bytes) {
  if (page_bytes > kSmallPageBytes || name.starts_with("/anon_hugepage") ||
      name.find("hugepages/") != name.npos)
    return Backing::huge_pages;
  if (inode == 0) return Backing::anonymous;
  for (const std::string_view memory : {"/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "/[aio]"})
    if (name.starts_with(memory)) return Backing::shared_memory;
  return Backing::file;
}

/// Returns 0, ENOENT if the kernel has no such mapping, or another errno if the kernel cannot answer.
int query(int maps, uint64_t flags, uint64_t address, MappingFacts& facts) {
  std::array<char, 256> name{};
  ProcmapQuery query{};
  query.size = sizeof query;
  query.query_flags = flags;
  query.query_addr = address;
  query.vma_name_size = name.size();
  query.vma_name_addr = reinterpret_cast<uint64_t>(name.data());
  // ENAMETOOLONG: the name is then a file's. A direct system call bypasses the library's own hook.
  if (syscall(SYS_ioctl, maps, kProcmapQuery, &query) != 0) return errno;
  const std::string_view text(name.data(), strnlen(name.data(), name.size()));
  facts = {query.vma_start,
           query.vma_end,
           query.vma_offset,
           query.inode,
           backing_of(text, query.inode, query.vma_page_size),
           is_segment_name(text)};
  return 0;
}

bool parse_line(std::string_view line, MappingFacts& facts) {
  std::array<char, 512> text{};
  line.copy(text.data(), text.size() - 1);
  std::array<char, 256> name{};
  const int fields = std::sscanf(text.data(), "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %" SCNu64 " %255s",
                                 &facts.start, &facts.end, &facts.offset_bytes, &facts.inode, name.data());
  if (fields < 4) return false;
  facts.backing = backing_of(fields == 5 ? std::string_view(name.data()) : std::string_view(), facts.inode,
                             kSmallPageBytes);
  facts.is_segment = fields == 5 && is_segment_name(name.data());
  return true;
}

/// Calls take(facts) for each mapping, by address, until it returns true. Returns false if it never does.
template <typename Take>
bool scan(int maps, MappingFacts& facts, Take take) {
  std::array<char, 8192> text{};
  size_t held = 0;
  off_t offset = 0;
  for (;;) {
    // Not pread(3), which is a cancellation point: callers include hooks of functions that are not.
    const long bytes = syscall(SYS_pread64, maps, text.data() + held, text.size() - held, offset);
    if (bytes <= 0) return false;
    offset += bytes;
    held += static_cast<size_t>(bytes);
    std::string_view left(text.data(), held);
    for (size_t end = left.find('\n'); end != left.npos; end = left.find('\n')) {
      if (parse_line(left.substr(0, end), facts) && take(facts)) return true;
      left.remove_prefix(end + 1);
    }
    std::memmove(text.data(), left.data(), left.size());
    held = left.size();
    if (held == text.size()) return false;  // no line of the kernel is so long
  }
}

}  // namespace

bool find_mapping(int maps, uint64_t address, MappingFacts& facts) {
  if (maps < 0) return false;
  const int error = query(maps, 0, address, facts);
  if (error == 0) return true;
  if (error == ENOENT) return false;
  return scan(maps, facts, [address](const MappingFacts& one) { return address < one.end; }) &&
         address >= facts.start;
}

bool find_mapping_from(int maps, uint64_t address, MappingFacts& facts) {
  if (maps < 0) return false;
  const int error = query(maps, kCoveringOrNext, address, facts);
  if (error == 0) return true;
  if (error == ENOENT) return false;
  return scan(maps, facts, [address](const MappingFacts& one) { return address < one.end; });
}

void for_each_file_mapping(int maps, uint64_t from, void* context, MappingVisit visit) {
  if (maps < 0) return;
  MappingFacts facts;
  int error = 0;
  while ((error = query(maps, kCoveringOrNext | kFileBacked, from, facts)) == 0) {
    if (!visit(context, facts)) return;
    from = facts.end;
  }
  if (error == ENOENT) return;
  // Reads the rest in one pass: one query per mapping would cost a pass each.
  scan(maps, facts,
       [=](const MappingFacts& one) { return one.inode != 0 && from < one.end && !visit(context, one); });
}

}  // namespace faultline::odp
