// SPDX-License-Identifier: BSD-3-Clause
// load_profile PROFILE.json PROGRAM ARGUMENTS: runs a program under the seccomp filter of a profile
// (tests/data/seccomp), as a container engine does.
//
// A profile has "otherwise", the action for calls without a rule, and "rules". An action is "allow" or an
// errno. A rule has "calls", names or numbers, an "action", and perhaps a condition on the "argument" of that
// index: "not" a value, "one_of" some values, or "without_bits", none of which is set.
//
// Exit status 77, which meson takes for a skipped test, where the kernel refuses the filter.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>
#include <seccomp.h>
#include <unistd.h>

namespace {

using nlohmann::json;

constexpr int kUsage = 2;
constexpr int kSkipped = 77;
constexpr int kCannotRun = 126;

struct Release {
  void operator()(void* filter) const { seccomp_release(filter); }
};
using Filter = std::unique_ptr<void, Release>;

uint32_t action_of(const std::string& text) {
  struct Known {
    std::string_view name;
    uint16_t number;
  };
  constexpr std::array kErrors{Known{"EPERM", EPERM}, Known{"ENOSYS", ENOSYS}, Known{"ENOTTY", ENOTTY},
                               Known{"EINVAL", EINVAL}};
  if (text == "allow") return SCMP_ACT_ALLOW;
  for (const Known& known : kErrors)
    if (known.name == text) return SCMP_ACT_ERRNO(known.number);
  throw std::runtime_error(text + ": is no action");
}

int number_of(const json& call) {
  if (call.is_number()) return call.get<int>();
  const int number = seccomp_syscall_resolve_name(call.get<std::string>().c_str());
  if (number == __NR_SCMP_ERROR)
    throw std::runtime_error(call.get<std::string>() + ": is no system call known here");
  return number;
}

void add(const Filter& filter, uint32_t action, int call, const scmp_arg_cmp* condition) {
  const int error =
      seccomp_rule_add_array(filter.get(), action, call, condition != nullptr ? 1 : 0, condition);
  if (error != 0) throw std::runtime_error("call " + std::to_string(call) + ": " + std::strerror(-error));
}

void add_rule(const Filter& filter, const json& rule) {
  const uint32_t action = action_of(rule.at("action"));
  for (const json& call : rule.at("calls")) {
    const int number = number_of(call);
    // Negative: a call that this architecture does not have.
    if (number < 0) continue;
    if (!rule.contains("argument")) {
      add(filter, action, number, nullptr);
      continue;
    }
    scmp_arg_cmp condition{.arg = rule.at("argument"), .op = SCMP_CMP_EQ, .datum_a = 0, .datum_b = 0};
    if (rule.contains("not")) {
      condition.op = SCMP_CMP_NE;
      condition.datum_a = rule.at("not");
      add(filter, action, number, &condition);
    } else if (rule.contains("without_bits")) {
      condition.op = SCMP_CMP_MASKED_EQ;
      condition.datum_a = rule.at("without_bits");
      add(filter, action, number, &condition);
    } else {
      for (const json& value : rule.at("one_of")) {
        condition.datum_a = value;
        add(filter, action, number, &condition);
      }
    }
  }
}

Filter make_filter(const char* path) {
  std::ifstream file(path);
  const json profile = json::parse(file);
  Filter filter(seccomp_init(action_of(profile.at("otherwise"))));
  if (!filter) throw std::runtime_error("libseccomp makes no filter");
  // A tree: a list of 300 calls would be compared one by one at each call.
  static_cast<void>(seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2));
  for (const json& rule : profile.at("rules")) add_rule(filter, rule);
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: load_profile PROFILE.json PROGRAM ARGUMENTS\n");
    return kUsage;
  }
  try {
    const Filter filter = make_filter(argv[1]);
    if (const int error = seccomp_load(filter.get()); error != 0) {
      std::fprintf(stderr, "load_profile: the kernel refuses the filter: %s\n", std::strerror(-error));
      return kSkipped;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "load_profile: %s: %s\n", argv[1], error.what());
    return kUsage;
  }
  execvp(argv[2], argv + 2);
  std::fprintf(stderr, "load_profile: %s: %s\n", argv[2], std::strerror(errno));
  return kCannotRun;
}
