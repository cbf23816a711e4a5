// SPDX-License-Identifier: BSD-3-Clause
// A scenario, its journal and a device, with a clock that the test sets.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pmd_glue/trouble/scenario_file.hpp"
#include "stack/trouble/director.hpp"

namespace faultline::trouble::test {

inline TimeNs now_ns = 0;

inline TimeNs clock_of_test() {
  return now_ns;
}

struct Play {
  explicit Play(Scenario scenario)
      : director(std::move(scenario), clock_of_test,
                 [this](const std::string& line) { lines.push_back(line); }),
        device(director.device("dev0")) {}
  explicit Play(const std::string& toml) : Play(glue::parse_scenario(toml, "test.toml")) {}

  const Action* call(std::string_view name, const Object& object, uint64_t bytes = 0) {
    return director.decide({.kind = EventKind::call, .name = name, .object = object, .bytes = bytes});
  }
  const Action* send(const Object& qp, uint64_t bytes = 0, std::string_view opcode = "SEND") {
    return director.decide({.kind = EventKind::send, .name = opcode, .object = qp, .bytes = bytes});
  }
  PacketFate packet(std::string_view name, const Object& object, std::string_view peer = "198.18.0.1",
                    bool is_request = false) {
    return director.decide_packet(
        {.kind = EventKind::packet, .name = name, .object = object, .peer = peer, .is_request = is_request},
        name.starts_with("out "), 1000, now_ns);
  }
  Object qp(uint64_t qpn) { return director.object(ObjectKind::qp, device, qpn); }
  [[nodiscard]] Object all() const { return {ObjectKind::device, device, 0}; }
  std::vector<Pending> pending() {
    std::vector<Pending> taken(16);
    taken.resize(director.take_pending(
        device, [](const Pending&) { return true; }, taken));
    return taken;
  }

  std::vector<std::string> lines;
  Director director;
  uint32_t device;
};

/// The text of a rule "r".
inline std::string rule(const std::string& when, const std::string& action, const std::string& rest = "") {
  return "[[rule]]\nname = \"r\"\nwhen = { " + when + " }\ndo = { " + action + " }\n" + rest;
}

}  // namespace faultline::trouble::test
