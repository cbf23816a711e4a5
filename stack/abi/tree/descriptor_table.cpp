// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/tree/descriptor_table.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <vector>

#include <unistd.h>

#include "stack/base/process/process_local.hpp"

namespace faultline::abi {

namespace {

/// One bit per number, so that a write to any other descriptor costs one load. The size is the kernel's
/// default limit (fs.nr_open); unused pages of the array are never touched.
constexpr size_t kDescriptors = size_t{1} << 20;
constexpr size_t kBitsPerWord = 64;
std::array<std::atomic<uint64_t>, kDescriptors / kBitsPerWord> g_ours;

uint64_t bit_of(size_t number) {
  return uint64_t{1} << number % kBitsPerWord;
}
/// The process that has made the table. A forked child has none until it adds a descriptor: only then do the
/// parent's bits count there, and lead to a look-up that finds nothing. A child of vfork runs in its parent's
/// memory until it executes a program, and closes descriptors there (Python's subprocess closes all). Those
/// are the child's, not the table's.
constinit std::atomic<pid_t> g_owner{0};

bool is_owner() {
  return g_owner.load(std::memory_order_relaxed) == getpid();
}
bool is_ours(int descriptor) {
  const auto number = static_cast<size_t>(descriptor);
  return descriptor >= 0 && number < kDescriptors &&
         (g_ours[number / kBitsPerWord].load(std::memory_order_relaxed) & bit_of(number)) != 0 && is_owner();
}

struct Table {
  Table() { g_owner = getpid(); }

  std::mutex mutex;
  std::map<int, std::shared_ptr<OpenFile>> files;
};
/// The objects belong to the parent, with its threads and engines. In a forked child their numbers are plain
/// descriptors without an object.
constinit ProcessLocal<Table> table;

}  // namespace

ssize_t OpenFile::write(const void* /*bytes*/, size_t /*length*/) {
  return -EBADF;  // opened for reading, as directories are
}

std::shared_ptr<OpenFile> find_descriptor(int descriptor) {
  if (!is_ours(descriptor)) return nullptr;
  Table& all = table.get();
  const std::lock_guard lock(all.mutex);
  const auto found = all.files.find(descriptor);
  return found == all.files.end() ? nullptr : found->second;
}

bool add_descriptor(int descriptor, std::shared_ptr<OpenFile> file) {
  if (descriptor < 0 || static_cast<size_t>(descriptor) >= kDescriptors) return false;
  const auto number = static_cast<size_t>(descriptor);
  Table& all = table.get();
  std::shared_ptr<OpenFile> replaced;
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<OpenFile>& slot = all.files[descriptor];
  replaced = std::move(slot);
  slot = std::move(file);
  g_ours[number / kBitsPerWord].fetch_or(bit_of(number), std::memory_order_relaxed);
  return true;
}

void remove_descriptor(int descriptor) {
  if (is_ours(descriptor))
    remove_descriptors(static_cast<unsigned>(descriptor), static_cast<unsigned>(descriptor));
}

void remove_descriptors(unsigned first, unsigned last) {
  if (!is_owner()) return;
  Table& all = table.get();
  std::vector<std::shared_ptr<OpenFile>> removed;  // destroyed after the lock is released
  const std::lock_guard lock(all.mutex);
  for (auto at = all.files.lower_bound(static_cast<int>(std::min<unsigned>(first, kDescriptors)));
       at != all.files.end() && static_cast<unsigned>(at->first) <= last; at = all.files.erase(at)) {
    const auto number = static_cast<size_t>(at->first);
    g_ours[number / kBitsPerWord].fetch_and(~bit_of(number), std::memory_order_relaxed);
    removed.push_back(std::move(at->second));
  }
}

}  // namespace faultline::abi
