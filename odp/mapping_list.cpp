// SPDX-License-Identifier: BSD-3-Clause
#include "odp/mapping_list.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <sys/ioctl.h>
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
constexpr uint64_t kSmallPageBytes = 4096;

Backing backing_of(std::string_view name, uint64_t inode, uint64_t page_bytes) {
  if (page_bytes > kSmallPageBytes || name.starts_with("/anon_hugepage") ||
      name.find("hugepages/") != name.npos)
    return Backing::huge_pages;
  if (inode == 0) return Backing::anonymous;
  for (const std::string_view memory : {"/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "/[aio]"})
    if (name.starts_with(memory)) return Backing::shared_memory;
  return Backing::file;
}

bool query(int maps, uint64_t address, MappingFacts& facts) {
  std::array<char, 256> name{};
  ProcmapQuery query{};
  query.size = sizeof query;
  query.query_addr = address;
  query.vma_name_size = name.size();
  query.vma_name_addr = reinterpret_cast<uint64_t>(name.data());
  // ENAMETOOLONG: then it is a file's.
  if (ioctl(maps, kProcmapQuery, &query) != 0) return false;
  const std::string_view text(name.data(), strnlen(name.data(), name.size()));
  facts = {query.vma_start, query.vma_end, query.vma_offset, query.inode,
           backing_of(text, query.inode, query.vma_page_size)};
  return true;
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
  return true;
}

}  // namespace

bool find_mapping(int maps, uint64_t address, MappingFacts& facts) {
  if (maps < 0) return false;
  if (query(maps, address, facts)) return true;
  std::array<char, 8192> text{};
  size_t held = 0;
  off_t offset = 0;
  for (;;) {
    const ssize_t bytes = pread(maps, text.data() + held, text.size() - held, offset);
    if (bytes <= 0) return false;
    offset += bytes;
    held += static_cast<size_t>(bytes);
    std::string_view left(text.data(), held);
    for (size_t end = left.find('\n'); end != left.npos; end = left.find('\n')) {
      if (parse_line(left.substr(0, end), facts)) {
        if (address < facts.start) return false;
        if (address < facts.end) return true;
      }
      left.remove_prefix(end + 1);
    }
    std::memmove(text.data(), left.data(), left.size());
    held = left.size();
    if (held == text.size()) return false;  // no line of the kernel's is so long
  }
}

}  // namespace faultline::odp
