// SPDX-License-Identifier: BSD-3-Clause
// The C library's names that list a directory, in the drop-in. A stream over one of our devices' directories
// is an object of ours.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/abi/files/open_sight.hpp"
#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/tree/descriptor_table.hpp"
#include "stack/abi/tree/file_view.hpp"
#include "stack/base/process/inherited.hpp"

namespace faultline::abi {

namespace {

NextCall<DIR*(const char*)> next_opendir("opendir");
NextCall<DIR*(int)> next_fdopendir("fdopendir");
NextCall<dirent*(DIR*)> next_readdir("readdir"), next_readdir64("readdir64");
NextCall<int(DIR*)> next_closedir("closedir"), next_dirfd("dirfd");
NextCall<void(DIR*)> next_rewinddir("rewinddir");
NextCall<long(DIR*)> next_telldir("telldir");
NextCall<void(DIR*, long)> next_seekdir("seekdir");
using Filter = int (*)(const dirent*);
using Compare = int (*)(const dirent**, const dirent**);
NextCall<int(const char*, dirent***, Filter, Compare)> next_scandir("scandir"), next_scandir64("scandir64");

struct Stream {
  std::shared_ptr<OpenFile> file;
  int descriptor = -1;
  size_t next = 0;  ///< ".", "..", then the names
  dirent entry{};
};

/// Streams in use. A forked child may read and close those of its parent.
using Streams = std::map<const DIR*, std::unique_ptr<Stream>>;
constinit Inherited<Streams> streams;
/// Their number. While there are none, a program's readdir costs one extra load.
constinit std::atomic<size_t> g_streams{0};

Stream* stream_of(DIR* directory) {
  if (g_streams.load(std::memory_order_relaxed) == 0) return nullptr;
  const auto all = streams.access();
  const auto found = all->find(directory);
  return found == all->end() ? nullptr : found->second.get();
}

DIR* open_stream(int descriptor, std::shared_ptr<OpenFile> file) {
  auto stream = std::make_unique<Stream>();
  stream->file = std::move(file);
  stream->descriptor = descriptor;
  // DIR is opaque: only the C library reads one, and it never gets this one.
  DIR* const directory = reinterpret_cast<DIR*>(stream.get());
  const auto all = streams.access();
  all->emplace(directory, std::move(stream));
  g_streams.fetch_add(1, std::memory_order_relaxed);
  return directory;
}

/// Programs skip what is no link among the interfaces.
unsigned char type_of(const Sight& sight, const std::string& name) {
  if (sight.path != kInterfaces) return DT_UNKNOWN;
  struct stat found {};
  const bool is_hosts =
      syscall(SYS_newfstatat, AT_FDCWD, (sight.path + "/" + name).c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
  return !is_hosts || S_ISLNK(found.st_mode) ? DT_LNK : DT_UNKNOWN;
}

dirent* read_entry(Stream& stream) {
  const Sight& sight = stream.file->sight;
  const std::vector<std::string>& names = sight.node->names;
  constexpr size_t kDots = 2;
  if (stream.next >= names.size() + kDots) return nullptr;
  const std::string name =
      stream.next < kDots ? std::string(stream.next + 1, '.') : names[stream.next - kDots];
  ++stream.next;
  stream.entry = {};
  stream.entry.d_ino = std::hash<std::string>{}(sight.path + "/" + name);
  stream.entry.d_off = static_cast<off_t>(stream.next);
  stream.entry.d_reclen = sizeof stream.entry;
  stream.entry.d_type = stream.next <= kDots ? static_cast<unsigned char>(DT_DIR) : type_of(sight, name);
  name.copy(stream.entry.d_name, sizeof stream.entry.d_name - 1);
  return &stream.entry;
}

template <typename Call>
dirent* readdir_or(DIR* directory, Call call) {
  if (Stream* const stream = stream_of(directory)) return read_entry(*stream);
  return call();
}

DIR* open_directory(const Sight& sight) {
  const int descriptor = open_sight(sight, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return descriptor < 0 ? nullptr : open_stream(descriptor, find_descriptor(descriptor));
}

int scan(const Sight& sight, dirent*** result, Filter filter, Compare compare) {
  DIR* const directory = open_directory(sight);
  if (directory == nullptr) return -1;
  std::vector<dirent*> entries;
  Stream& stream = *stream_of(directory);
  while (const dirent* const entry = read_entry(stream)) {
    if (filter != nullptr && filter(entry) == 0) continue;
    // The caller frees each entry, and the list.
    entries.push_back(static_cast<dirent*>(std::malloc(sizeof *entry)));
    *entries.back() = *entry;
  }
  ::closedir(directory);
  if (compare != nullptr)
    std::sort(entries.begin(), entries.end(),
              [&](const dirent* a, const dirent* b) { return compare(&a, &b) < 0; });
  *result = static_cast<dirent**>(std::calloc(entries.size() + 1, sizeof(void*)));
  std::copy(entries.begin(), entries.end(), *result);
  return static_cast<int>(entries.size());
}

}  // namespace

extern "C" {

DIR* abi_opendir(const char* path) FAULTLINE_STANDS_BEFORE("opendir");
DIR* abi_opendir(const char* path) {
  if (const auto sight = look_at(AT_FDCWD, path)) return open_directory(*sight);
  return next_opendir(path);
}
DIR* abi_fdopendir(int descriptor) FAULTLINE_STANDS_BEFORE("fdopendir");
DIR* abi_fdopendir(int descriptor) {
  auto file = find_descriptor(descriptor);
  if (file == nullptr) return next_fdopendir(descriptor);
  if (file->sight.node->kind == NodeKind::directory) return open_stream(descriptor, std::move(file));
  errno = ENOTDIR;
  return nullptr;
}

dirent* abi_readdir(DIR* directory) FAULTLINE_STANDS_BEFORE("readdir");
dirent* abi_readdir(DIR* directory) {
  return readdir_or(directory, [=] { return next_readdir(directory); });
}
dirent* abi_readdir64(DIR* directory) FAULTLINE_STANDS_BEFORE("readdir64");
dirent* abi_readdir64(DIR* directory) {
  return readdir_or(directory, [=] { return next_readdir64(directory); });
}

int abi_closedir(DIR* directory) FAULTLINE_STANDS_BEFORE("closedir");
int abi_closedir(DIR* directory) {
  Stream* const stream = stream_of(directory);
  if (stream == nullptr) return next_closedir(directory);
  const int descriptor = stream->descriptor;
  {
    const auto all = streams.access();
    all->erase(directory);
    g_streams.fetch_sub(1, std::memory_order_relaxed);
  }
  return ::close(descriptor);
}
int abi_dirfd(DIR* directory) FAULTLINE_STANDS_BEFORE("dirfd");
int abi_dirfd(DIR* directory) {
  const Stream* const stream = stream_of(directory);
  return stream != nullptr ? stream->descriptor : next_dirfd(directory);
}
void abi_rewinddir(DIR* directory) FAULTLINE_STANDS_BEFORE("rewinddir");
void abi_rewinddir(DIR* directory) {
  if (Stream* const stream = stream_of(directory))
    stream->next = 0;
  else
    next_rewinddir(directory);
}
long abi_telldir(DIR* directory) FAULTLINE_STANDS_BEFORE("telldir");
long abi_telldir(DIR* directory) {
  const Stream* const stream = stream_of(directory);
  return stream != nullptr ? static_cast<long>(stream->next) : next_telldir(directory);
}
void abi_seekdir(DIR* directory, long position) FAULTLINE_STANDS_BEFORE("seekdir");
void abi_seekdir(DIR* directory, long position) {
  if (Stream* const stream = stream_of(directory))
    stream->next = static_cast<size_t>(position);
  else
    next_seekdir(directory, position);
}

int abi_scandir(const char* path, dirent*** list, Filter filter, Compare compare)
    FAULTLINE_STANDS_BEFORE("scandir");
int abi_scandir(const char* path, dirent*** list, Filter filter, Compare compare) {
  if (const auto sight = look_at(AT_FDCWD, path)) return scan(*sight, list, filter, compare);
  return next_scandir(path, list, filter, compare);
}
int abi_scandir64(const char* path, dirent*** list, Filter filter, Compare compare)
    FAULTLINE_STANDS_BEFORE("scandir64");
int abi_scandir64(const char* path, dirent*** list, Filter filter, Compare compare) {
  if (const auto sight = look_at(AT_FDCWD, path)) return scan(*sight, list, filter, compare);
  return next_scandir64(path, list, filter, compare);
}

}  // extern "C"

}  // namespace faultline::abi
