// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/status.hpp"

#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "pmd_glue/wires/granted_addresses.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::switching {
namespace {

constexpr uint32_t kMostQpn = (1U << 24) - 1;

/// Returns the first of the seat's addresses.
std::string text_of(const glue::SwitchGrant& grant) {
  return wire::text_of(glue::addresses_of(grant).at(0).gid);
}

std::string text_of(const std::array<uint8_t, 6>& mac) {
  return fmt::format("{:02x}", fmt::join(mac, ":"));
}

/// In the order of their addition.
using Json = nlohmann::ordered_json;

void add(Json& to, const PortCounters& counters) {
  to["sent_frames"] = counters.sent.frames;
  to["sent_bytes"] = counters.sent.bytes;
  to["received_frames"] = counters.received.frames;
  to["received_bytes"] = counters.received.bytes;
  to["dropped"] = counters.dropped;
  to["undelivered"] = counters.undelivered;
  to["rate_limited"] = counters.rate_limited;
}

Json json_of(const SwitchCounters& counters) {
  Json fields{{"forwarded", counters.forwarded},
              {"answered", counters.answered},
              {"rate_limited", counters.rate_limited},
              {"full", counters.full},
              {"crowded", counters.crowded}};
  for (size_t i = 1; i < counters.drops.size(); ++i)
    fields[std::string(name_of(static_cast<Drop>(i)))] = counters.drops[i];
  return fields;
}

Json json_of(const UplinkStatus& uplink) {
  Json fields{{"port", uplink.port},     {"up", uplink.is_up},  {"mac", text_of(uplink.mac.bytes)},
              {"mtu", uplink.mtu_bytes}, {"vlan", uplink.vlan}, {"waiting", uplink.waiting}};
  add(fields, uplink.counters);
  fields["foreign_vlan"] = uplink.foreign_vlan;
  fields["missed"] = uplink.missed;
  fields["no_buffer"] = uplink.no_buffer;
  fields["refused"] = uplink.refused;
  return fields;
}

Json json_of(const SeatStatus& seat) {
  Json fields{{"seat", seat.port},
              {"pid", seat.pid},
              {"ip", text_of(seat.grant)},
              {"first_qpn", seat.grant.shared != 0 ? seat.grant.first_qpn() : 0},
              {"last_qpn", seat.grant.shared != 0 ? seat.grant.last_qpn() : kMostQpn},
              {"direct_links", seat.direct_links}};
  add(fields, seat.counters);
  return fields;
}

std::string line_of(std::string_view what, const PortCounters& counters) {
  std::string line =
      fmt::format("{}: sent {} frames {} bytes, received {} frames {} bytes", what, counters.sent.frames,
                  counters.sent.bytes, counters.received.frames, counters.received.bytes);
  for (const auto& [name, count] :
       {std::pair{"dropped", counters.dropped}, std::pair{"undelivered", counters.undelivered},
        std::pair{"rate-limited", counters.rate_limited}})
    if (count != 0) line += fmt::format(", {} {}", name, count);
  return line;
}

}  // namespace

std::string json_of(const SwitchStatus& status) {
  Json fields{{"wire", status.wire}, {"pid", status.pid}, {"counters", json_of(status.counters)}};
  if (status.uplink) fields["uplink"] = json_of(*status.uplink);
  if (status.kernel) {
    Json& kernel = fields["exception"] = {{"tap", status.exception}};
    add(kernel, *status.kernel);
  }
  fields["seats"] = Json::array();
  for (const SeatStatus& seat : status.seats) fields["seats"].push_back(json_of(seat));
  // A name that is not UTF-8 must not end the switch.
  return fields.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string text_of(const SwitchStatus& status) {
  const SwitchCounters& counters = status.counters;
  std::string text = fmt::format("wire {}, process {}: forwarded {}, answered {}", status.wire, status.pid,
                                 counters.forwarded, counters.answered);
  const auto add = [&](std::string_view name, uint64_t count) {
    if (count != 0) text += fmt::format(", {} {}", name, count);
  };
  add("rate_limited", counters.rate_limited);
  add("full", counters.full);
  add("crowded", counters.crowded);
  for (size_t i = 1; i < counters.drops.size(); ++i) add(name_of(static_cast<Drop>(i)), counters.drops[i]);
  text += '\n';
  if (status.uplink) {
    const UplinkStatus& uplink = *status.uplink;
    text += line_of(fmt::format("uplink {}, {}, {}, MTU {}", uplink.port, uplink.is_up ? "up" : "down",
                                text_of(uplink.mac.bytes), uplink.mtu_bytes),
                    uplink.counters);
    if (uplink.vlan != 0) text += fmt::format(", VLAN {}", uplink.vlan);
    add("waiting", uplink.waiting);
    add("foreign_vlan", uplink.foreign_vlan);
    add("missed", uplink.missed);
    add("no_buffer", uplink.no_buffer);
    add("refused", uplink.refused);
    text += '\n';
  }
  if (status.kernel) text += line_of("exception port " + status.exception, *status.kernel) + "\n";
  for (const SeatStatus& seat : status.seats) {
    text += line_of(fmt::format("seat {}, process {}, {}", seat.port, seat.pid, text_of(seat.grant)),
                    seat.counters);
    if (seat.grant.shared != 0)
      text += fmt::format(", QPNs {:#x} to {:#x}", seat.grant.first_qpn(), seat.grant.last_qpn());
    add("direct links", seat.direct_links);
    text += '\n';
  }
  return text;
}

}  // namespace faultline::switching
