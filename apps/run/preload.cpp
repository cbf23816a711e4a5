// SPDX-License-Identifier: BSD-3-Clause
#include "apps/run/preload.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace faultline::run {
namespace {

// Far above what linkers write; a file that exceeds a limit is not read.
constexpr size_t kMostProgramHeaders = 4096;
constexpr size_t kMostDynamicEntries = 65'536;
constexpr size_t kMostStringBytes = size_t{16} << 20;

bool is_executable_file(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && access(path.c_str(), X_OK) == 0;
}

/// Reads a file's bytes by offset.
class File {
 public:
  explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Returns false if the file does not contain the whole range.
  [[nodiscard]] bool read(uint64_t offset, void* bytes, size_t count) const {
    auto* at = static_cast<char*>(bytes);
    while (count != 0) {
      if (offset > static_cast<uint64_t>(INT64_MAX)) return false;
      const ssize_t n = pread(fd_, at, count, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      offset += static_cast<uint64_t>(n);
      count -= static_cast<size_t>(n);
    }
    return true;
  }

 private:
  int fd_;
};

std::vector<Elf64_Phdr> program_headers(const File& file) {
  Elf64_Ehdr header{};
  if (!file.read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMostProgramHeaders)
    return {};
  std::vector<Elf64_Phdr> headers(header.e_phnum);
  if (!file.read(header.e_phoff, headers.data(), headers.size() * sizeof(Elf64_Phdr))) return {};
  return headers;
}

/// Returns the file offset of what is loaded at `address`.
std::optional<uint64_t> offset_of(const std::vector<Elf64_Phdr>& headers, uint64_t address) {
  for (const Elf64_Phdr& header : headers)
    if (header.p_type == PT_LOAD && address >= header.p_vaddr && address - header.p_vaddr < header.p_filesz)
      return header.p_offset + (address - header.p_vaddr);
  return std::nullopt;
}

std::vector<Elf64_Dyn> dynamic_entries(const File& file, const std::vector<Elf64_Phdr>& headers) {
  const auto dynamic = std::ranges::find(headers, Elf64_Word{PT_DYNAMIC}, &Elf64_Phdr::p_type);
  if (dynamic == headers.end()) return {};
  const uint64_t count = dynamic->p_filesz / sizeof(Elf64_Dyn);
  if (count > kMostDynamicEntries) return {};
  std::vector<Elf64_Dyn> entries(count);
  if (!file.read(dynamic->p_offset, entries.data(), entries.size() * sizeof(Elf64_Dyn))) return {};
  entries.erase(std::ranges::find(entries, Elf64_Sxword{DT_NULL}, &Elf64_Dyn::d_tag), entries.end());
  return entries;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_executable_file(name) ? name : std::string();
  const char* const set = std::getenv("PATH");
  std::string_view path = set != nullptr ? set : "/bin:/usr/bin";
  for (;;) {
    const size_t colon = path.find(':');
    // An empty entry is the current folder (execvp(3)).
    std::string file(path.substr(0, colon));
    if (!file.empty()) file += '/';
    file += name;
    if (is_executable_file(file)) return file;
    if (colon == std::string_view::npos) return {};
    path.remove_prefix(colon + 1);
  }
}

std::vector<std::string> needed_libraries(const std::string& path) {
  const File file(path);
  const std::vector<Elf64_Phdr> headers = program_headers(file);
  const std::vector<Elf64_Dyn> entries = dynamic_entries(file, headers);
  const auto address = std::ranges::find(entries, Elf64_Sxword{DT_STRTAB}, &Elf64_Dyn::d_tag);
  const auto length = std::ranges::find(entries, Elf64_Sxword{DT_STRSZ}, &Elf64_Dyn::d_tag);
  if (address == entries.end() || length == entries.end() || length->d_un.d_val > kMostStringBytes) return {};
  const std::optional<uint64_t> offset = offset_of(headers, address->d_un.d_ptr);
  std::string names(length->d_un.d_val, '\0');
  if (!offset || !file.read(*offset, names.data(), names.size())) return {};
  std::vector<std::string> needed;
  for (const Elf64_Dyn& entry : entries)
    if (entry.d_tag == DT_NEEDED && entry.d_un.d_val < names.size())
      needed.emplace_back(names.c_str() + entry.d_un.d_val);
  return needed;
}

bool is_sanitizer(std::string_view library) {
  constexpr std::array<std::string_view, 8> kPrefixes{
      "libasan.so",        "libhwasan.so",        "liblsan.so",        "libtsan.so",
      "libclang_rt.asan-", "libclang_rt.hwasan-", "libclang_rt.lsan-", "libclang_rt.tsan-"};
  const std::string_view name = library.substr(library.rfind('/') + 1);
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string preload_list(const std::string& library, std::string_view user_list,
                         const std::vector<std::string>& needed) {
  std::vector<std::string> first;
  std::vector<std::string> behind;
  while (!user_list.empty()) {
    const size_t end = std::min(user_list.find_first_of(": "), user_list.size());
    const std::string_view one = user_list.substr(0, end);
    if (!one.empty()) (is_sanitizer(one) ? first : behind).emplace_back(one);
    user_list.remove_prefix(std::min(end + 1, user_list.size()));
  }
  if (first.empty()) std::ranges::copy_if(needed, std::back_inserter(first), is_sanitizer);
  first.push_back(library);
  first.insert(first.end(), behind.begin(), behind.end());
  std::string list;
  for (const std::string& one : first) list += (list.empty() ? "" : ":") + one;
  return list;
}

std::string tsan_options(std::string_view user_options) {
  std::string options = "ignore_noninstrumented_modules=1";
  if (!user_options.empty()) options.append(":").append(user_options);
  return options;
}

}  // namespace faultline::run
