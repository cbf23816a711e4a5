// SPDX-License-Identifier: BSD-3-Clause
// A memory cgroup that exists already, of version 1 or 2 (Linux
// Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst).
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "tests/interop/e2e/side.hpp"

namespace faultline::e2e {

class MemoryCgroup {
 public:
  explicit MemoryCgroup(std::string folder)
      : folder_(std::move(folder)), is_v2_(std::filesystem::exists(folder_ + "/memory.max")) {}

  void join() const { write("cgroup.procs", std::to_string(getpid())); }
  void limit(uint64_t bytes) const {
    write(is_v2_ ? "memory.max" : "memory.limit_in_bytes", std::to_string(bytes));
  }
  [[nodiscard]] uint64_t used_bytes() const {
    return number(is_v2_ ? "memory.current" : "memory.usage_in_bytes", "");
  }
  /// How often its processes had to wait for memory because of the limit.
  [[nodiscard]] uint64_t times_at_limit() const {
    return is_v2_ ? number("memory.events", "max") : number("memory.failcnt", "");
  }
  [[nodiscard]] uint64_t kills() const {
    return number(is_v2_ ? "memory.events" : "memory.oom_control", "oom_kill");
  }

 private:
  /// The file's number, or the one behind `key` where it has lines of a key and a number.
  [[nodiscard]] uint64_t number(const char* name, const std::string& key) const {
    std::ifstream file(folder_ + "/" + name);
    uint64_t value = 0;
    if (key.empty() && file >> value) return value;
    std::string word;
    while (!key.empty() && file >> word >> value)
      if (word == key) return value;
    fail("cgroup", name);
  }
  void write(const char* name, const std::string& text) const {
    std::ofstream file(folder_ + "/" + name);
    file << text << std::flush;
    if (!file) fail("cgroup", name);
  }

  std::string folder_;
  bool is_v2_;
};

}  // namespace faultline::e2e
