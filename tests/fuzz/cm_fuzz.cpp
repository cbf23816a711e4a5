// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: two communication managers whose datagrams come, go, are changed and made up as the input
// says, under programs that call anything. Whatever happens, all of it ends once both are told to end.
#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <vector>

#include "stack/cm/manager.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_port.hpp"

namespace faultline::fuzz {
namespace {

using cm::Id;

struct Tally {
  ~Tally() { std::fprintf(stderr, "packets %llu\n", static_cast<unsigned long long>(packets)); }
  uint64_t packets = 0;
} tally;

constexpr uint64_t kIpService = wire::ip_service_id(0x0106, 1);
constexpr uint64_t kPlainService = 0xcafe;

class Side final : private cm::MadSender {
 public:
  explicit Side(uint32_t host) : gid(wire::Gid::from_ipv4(0xc6120000U | host)), host_(host) {}

  void send_mad(const wire::MadBytes& mad, const transport::AddressVector& /*to*/,
                uint16_t /*pkey*/) override {
    sent.push_back(mad);
    if (sent.size() > 64) sent.pop_front();
  }

  const wire::Gid gid;
  std::deque<wire::MadBytes> sent;
  std::vector<Id> ids;

 private:
  const uint32_t host_;

 public:
  cm::Manager manager{{.ca_guid = host_, .comm_id_mask = 0xffff, .seed = host_ * 0x100ULL, .max_ids = 64},
                      *this};
};

cm::Path path_between(const Side& from, const Side& to) {
  cm::Path path;
  path.av.path.source_gid = from.gid;
  path.av.path.destination_gid = to.gid;
  return path;
}

void deliver(FuzzInput& input, Side& to, Side& from, TimeNs now) {
  wire::MadBytes mad{};
  const uint8_t how = input.byte();
  if (!from.sent.empty() && (how & 0xe0) != 0) {
    mad = from.sent[how % from.sent.size()];
    for (int changes = how >> 6; changes > 1; --changes) mad[input.byte()] = input.byte();
  } else {
    const std::span<const uint8_t> bytes = input.bytes(wire::kMadBytes);
    std::copy(bytes.begin(), bytes.end(), mad.begin());
  }
  cm::MadSource source;
  source.reply = path_between(to, (how & 0x1f) == 0x1f ? to : from).av;
  ++tally.packets;
  to.manager.on_mad(std::span(mad).first((how & 0x1f) == 0x1e ? input.byte() : wire::kMadBytes), source, now);
}

void call(FuzzInput& input, Side& side, const Side& peer, TimeNs now) {
  std::array<uint8_t, 255> data{};
  const auto private_data = [&] { return std::span<const uint8_t>(data).first(input.byte()); };
  const uint8_t what = input.byte();
  const Id id = side.ids.empty() || what >= 0xf0 ? input.take<uint16_t>() : side.ids[what % side.ids.size()];
  const uint32_t qpn = input.byte();
  Id made = 0;
  const bool ip = (what & 0x80) != 0;
  switch (what % 11) {
    case 0: {
      cm::ConnectParams params{.service_id = ip ? kIpService : kPlainService,
                               .path = path_between(side, peer),
                               .transport = static_cast<wire::CmTransport>(input.byte() & 3),
                               .qpn = qpn,
                               .private_data = private_data()};
      params.timing = {input.byte(), input.byte(), static_cast<uint8_t>(input.byte() & 15)};
      if (ip) params.ip = wire::IpAddressing{side.gid, peer.gid, 7};
      if (side.manager.connect(params, now, made) == 0) side.ids.push_back(made);
      break;
    }
    case 1:
      if (side.manager.listen({.service_id = ip ? kIpService : kPlainService, .backlog = qpn}, made) == 0)
        side.ids.push_back(made);
      break;
    case 2:
      static_cast<void>(side.manager.accept(id, {.qpn = qpn, .private_data = private_data()}, now));
      break;
    case 3:
      static_cast<void>(side.manager.confirm(id, private_data(), now));
      break;
    case 4:
      static_cast<void>(
          side.manager.reject(id, static_cast<wire::RejectReason>(qpn), private_data(), private_data(), now));
      break;
    case 5:
      static_cast<void>(side.manager.delay(id, static_cast<uint8_t>(qpn), private_data(), now));
      break;
    case 6:
      static_cast<void>(side.manager.disconnect(id, private_data(), now));
      break;
    case 7:
      static_cast<void>(side.manager.notify_established(id, now));
      break;
    case 8: {
      cm::ResolveParams params{.service_id = ip ? kIpService : kPlainService,
                               .path = path_between(side, peer),
                               .response_timeout = input.byte(),
                               .private_data = private_data()};
      if (ip) params.ip = wire::IpAddressing{side.gid, peer.gid, 7};
      if (side.manager.resolve(params, now, made) == 0) side.ids.push_back(made);
      break;
    }
    case 9:
      static_cast<void>(side.manager.answer(id, {.qpn = qpn, .private_data = private_data()}, now));
      break;
    default:
      side.manager.destroy(id, now);
      std::erase(side.ids, id);
      require(!side.manager.state(id), "a destroyed ID has no state");
  }
}

void take_events(Side& side) {
  for (cm::Event event; side.manager.take_event(event);) {
    require(side.manager.state(event.id).has_value(), "an event is of an ID that its owner has");
    if (std::find(side.ids.begin(), side.ids.end(), event.id) == side.ids.end()) {
      require(event.kind == cm::EventKind::requested || event.kind == cm::EventKind::service_requested,
              "an ID is first heard of by its request");
      side.ids.push_back(event.id);
    }
  }
}

void run(FuzzInput& input) {
  Side sides[2]{Side(1), Side(2)};
  TimeNs now = 1;
  while (!input.empty()) {
    const uint8_t how = input.byte();
    Side& side = sides[how & 1];
    Side& peer = sides[1 - (how & 1)];
    switch (how >> 1 & 3) {
      case 0:
      case 1:
        deliver(input, side, peer, now);
        break;
      case 2:
        call(input, side, peer, now);
        break;
      default:
        now += uint64_t{input.byte()} << (how >> 3);
        side.manager.poll(now);
        require(side.manager.next_deadline() > now, "what was due is done");
    }
    take_events(side);
  }
  for (Side& side : sides) {
    side.manager.destroy_all(now);
    require(!side.manager.has_events(), "nobody is there to be told");
    for (int i = 0; i < 10'000 && side.manager.next_deadline() != kNever; ++i)
      side.manager.poll(side.manager.next_deadline());
    require(side.manager.next_deadline() == kNever, "all of it ends");
  }
}

}  // namespace
}  // namespace faultline::fuzz

extern "C" [[gnu::visibility("default")]] int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  faultline::fuzz::FuzzInput input(data, bytes);
  faultline::fuzz::run(input);
  return 0;
}
