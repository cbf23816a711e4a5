// SPDX-License-Identifier: BSD-3-Clause
// Messages of a malicious memif peer: sizes, offsets and order that net_memif would trust.
#include "pmd_glue/memif/memif_handshake.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/glue/memif_peer.hpp"

namespace faultline::glue::memif_handshake_test {
namespace {

using memif::Handshake;
using memif::MessageType;
using tests::make_region_file;
using tests::MemifPeer;

using Message = std::array<uint8_t, memif::kMessageBytes>;

template <typename Body>
Message message_of(MessageType type, const Body& body) {
  Message message{};
  std::memcpy(message.data(), &type, sizeof type);
  std::memcpy(message.data() + sizeof type, &body, sizeof body);
  return message;
}

constexpr memif::Init kInit{.version = memif::kVersion, .id = 0, .mode = 0};
constexpr unsigned kLog2 = MemifPeer::kLog2RingSize;
constexpr auto kSecondRing = static_cast<uint32_t>(memif::ring_bytes(kLog2));

memif::AddRing ring(uint16_t flags, uint32_t offset) {
  return {.flags = flags, .index = 0, .region = 0, .offset = offset, .log2_size = kLog2};
}

/// The server's side of a handshake, and a client that can send any message.
class MemifHandshakes : public testing::Test {
 protected:
  template <typename Body>
  const char* say(MessageType type, const Body& body, std::vector<int> descriptors = {}) {
    return server->on_receive(message_of(type, body), descriptors);
  }
  const char* say(MessageType type) { return say(type, uint8_t{0}); }
  const char* init() { return say(MessageType::init, kInit); }
  const char* add_region() {
    return say(MessageType::add_region, memif::AddRegion{0, MemifPeer::size_bytes()}, {file.get()});
  }
  const char* add_ring(const memif::AddRing& added) {
    return say(MessageType::add_ring, added, {file.get()});
  }
  void expect_all_in_order(std::initializer_list<const char*> answers) {
    for (const char* const why : answers) ASSERT_EQ(why, nullptr);
  }

  UniqueFd file = make_region_file(MemifPeer::size_bytes());
  std::optional<Handshake> server{std::in_place, Handshake::Role::server};
};

TEST_F(MemifHandshakes, EndInALinkWhereAllIsInOrder) {
  EXPECT_FALSE(server->take_geometry());
  expect_all_in_order({init(), add_region(), add_ring(ring(memif::kRingToServer, 0)),
                       add_ring(ring(0, kSecondRing)), say(MessageType::connect)});
  const auto geometry = server->take_geometry();
  ASSERT_TRUE(geometry);
  EXPECT_EQ(geometry->to_client.offset, kSecondRing);
  EXPECT_EQ(geometry->regions.size(), 1U);
  EXPECT_EQ(say(MessageType::disconnect), nullptr);
}

TEST_F(MemifHandshakes, RefuseWhatIsBeforeInitAndAnotherKindOfLink) {
  EXPECT_NE(add_region(), nullptr);
  EXPECT_NE(init(), nullptr) << "once refused, refused for good";
  for (const memif::Init& other : {memif::Init{.version = 0x100, .id = 0, .mode = 0},
                                   memif::Init{.version = memif::kVersion, .id = 1, .mode = 0},
                                   memif::Init{.version = memif::kVersion, .id = 0, .mode = 1}}) {
    Handshake another(Handshake::Role::server);
    EXPECT_NE(another.on_receive(message_of(MessageType::init, other), {}), nullptr);
  }
}

TEST_F(MemifHandshakes, RefuseARegionThatIsShorterThanItSays) {
  expect_all_in_order({init()});
  EXPECT_NE(say(MessageType::add_region, memif::AddRegion{0, MemifPeer::size_bytes() + 1}, {file.get()}),
            nullptr);
}

/// An access to a page removed by truncation raises SIGBUS.
TEST_F(MemifHandshakes, RefuseARegionThatMayShrink) {
  expect_all_in_order({init()});
  file = make_region_file(MemifPeer::size_bytes(), false);
  EXPECT_NE(add_region(), nullptr);
}

TEST_F(MemifHandshakes, RefuseSizesAndNumbersOfRegions) {
  for (const memif::AddRegion& wrong : {memif::AddRegion{0, 0}, memif::AddRegion{0, UINT64_MAX},
                                        memif::AddRegion{1, 4096}, memif::AddRegion{UINT16_MAX, 4096}}) {
    Handshake another(Handshake::Role::server);
    ASSERT_EQ(another.on_receive(message_of(MessageType::init, kInit), {}), nullptr);
    const int descriptor = file.get();
    EXPECT_NE(another.on_receive(message_of(MessageType::add_region, wrong), {&descriptor, 1}), nullptr);
  }
  expect_all_in_order({init()});
  uint16_t regions = 0;
  while (regions < 1000 &&
         say(MessageType::add_region, memif::AddRegion{regions, 4096}, {file.get()}) == nullptr)
    ++regions;
  EXPECT_LE(regions, 16);
}

TEST_F(MemifHandshakes, RefuseARingThatDoesNotLieInItsRegion) {
  const auto size = static_cast<uint32_t>(MemifPeer::size_bytes());
  auto other_region = ring(0, 0);
  other_region.region = 1;
  auto too_long = ring(0, 0);
  too_long.log2_size = 15;
  auto without_room = ring(0, 0);
  without_room.log2_size = 0;
  auto second_queue = ring(0, 0);
  second_queue.index = 1;
  for (const memif::AddRing& wrong : {ring(0, size), ring(0, size - 8), ring(0, UINT32_MAX - 7), ring(0, 4),
                                      other_region, too_long, without_room, second_queue}) {
    Handshake another(Handshake::Role::server);
    const int descriptor = file.get();
    ASSERT_EQ(another.on_receive(message_of(MessageType::init, kInit), {}), nullptr);
    ASSERT_EQ(
        another.on_receive(message_of(MessageType::add_region, memif::AddRegion{0, MemifPeer::size_bytes()}),
                           {&descriptor, 1}),
        nullptr);
    EXPECT_NE(another.on_receive(message_of(MessageType::add_ring, wrong), {&descriptor, 1}), nullptr)
        << wrong.offset;
  }
}

/// net_memif increments its ring count with each of these, beyond the number of its queues.
TEST_F(MemifHandshakes, RefuseASecondRingForADirection) {
  expect_all_in_order({init(), add_region(), add_ring(ring(memif::kRingToServer, 0))});
  EXPECT_NE(add_ring(ring(memif::kRingToServer, kSecondRing)), nullptr);
}

TEST_F(MemifHandshakes, RefuseToConnectWithoutBothRings) {
  expect_all_in_order({init(), add_region(), add_ring(ring(memif::kRingToServer, 0))});
  EXPECT_NE(say(MessageType::connect), nullptr);
  EXPECT_FALSE(server->take_geometry());
}

TEST_F(MemifHandshakes, RefuseEverythingButTheEndOnceConnected) {
  for (const MessageType type : {MessageType::init, MessageType::add_region, MessageType::add_ring,
                                 MessageType::connect, MessageType::hello, MessageType::connected}) {
    server.emplace(Handshake::Role::server);
    expect_all_in_order({init(), add_region(), add_ring(ring(memif::kRingToServer, 0)),
                         add_ring(ring(0, kSecondRing)), say(MessageType::connect)});
    const bool brings_one = type == MessageType::add_region || type == MessageType::add_ring;
    EXPECT_NE(say(type, uint8_t{0}, brings_one ? std::vector{file.get()} : std::vector<int>{}), nullptr);
  }
}

/// net_memif would leave them open for ever.
TEST_F(MemifHandshakes, RefuseDescriptorsThatNobodyAskedFor) {
  EXPECT_NE(say(MessageType::init, kInit, {file.get()}), nullptr);
  Handshake another(Handshake::Role::server);
  ASSERT_EQ(another.on_receive(message_of(MessageType::init, kInit), {}), nullptr);
  const std::array two{file.get(), file.get()};
  EXPECT_NE(another.on_receive(message_of(MessageType::add_region, memif::AddRegion{0, 4096}), two), nullptr);
}

TEST_F(MemifHandshakes, AClientRefusesAServersTricks) {
  const memif::Hello hello{.name = {},
                           .min_version = memif::kVersion,
                           .max_version = memif::kVersion,
                           .max_region = 255,
                           .max_s2c_ring = 255,
                           .max_c2s_ring = 255,
                           .max_log2_ring_size = 14};
  const auto expect_refused = [&](std::initializer_list<Message> messages) {
    Handshake client(Handshake::Role::client);
    const char* why = nullptr;
    for (const Message& message : messages) {
      ASSERT_EQ(why, nullptr);
      why = client.on_receive(message, {});
    }
    EXPECT_NE(why, nullptr);
  };
  const Message greeting = message_of(MessageType::hello, hello);
  auto narrow = hello;
  narrow.max_log2_ring_size = 0;
  expect_refused({greeting, greeting});
  expect_refused({message_of(MessageType::hello, narrow)});
  expect_refused({greeting, message_of(MessageType::connected, uint8_t{0})});
  expect_refused({greeting, message_of(MessageType::init, kInit)});
  expect_refused({greeting, message_of(MessageType::connect, uint8_t{0})});
}

TEST_F(MemifHandshakes, MessagesOfAnythingEndInAWholeGeometryOrNone) {
  std::mt19937 random(2);
  const size_t rounds = std::getenv("FAULTLINE_SOAK") != nullptr ? 200'000 : 5'000;
  size_t links = 0;
  for (size_t round = 0; round < rounds; ++round) {
    Handshake another(Handshake::Role::server);
    for (int step = 0; step < 6; ++step) {
      const int descriptor = file.get();
      const std::span<const int> one(&descriptor, 1);
      const bool astray = random() % 8 == 0;
      Message message{};
      bool brings = false;
      switch (astray ? random() % 6 : static_cast<unsigned>(step)) {
        case 0:
          message = message_of(MessageType::init, kInit);
          break;
        case 1:
          message = message_of(MessageType::add_region,
                               memif::AddRegion{static_cast<uint16_t>(random() % 2),
                                                random() % 4 == 0 ? random() : MemifPeer::size_bytes()});
          brings = true;
          break;
        case 2:
        case 3:
          message = message_of(MessageType::add_ring,
                               ring(static_cast<uint16_t>(step == 2 ? 1 : 0),
                                    random() % 4 == 0 ? static_cast<uint32_t>(random())
                                                      : static_cast<uint32_t>(step - 2) * kSecondRing));
          brings = true;
          break;
        case 4:
          message = message_of(MessageType::connect, uint8_t{0});
          break;
        default:
          for (uint8_t& byte : message) byte = static_cast<uint8_t>(random());
      }
      static_cast<void>(another.on_receive(message, brings ? one : std::span<const int>()));
    }
    if (const auto geometry = another.take_geometry()) {
      ++links;
      for (const memif::RingPlace& place : {geometry->to_server, geometry->to_client}) {
        ASSERT_LT(place.region, geometry->regions.size());
        const memif::Region& region = geometry->regions[place.region];
        ASSERT_LE(place.offset + memif::ring_bytes(place.log2_size), region.size_bytes());
        // The last byte of the region is accessible.
        static_cast<void>(*const_cast<volatile uint8_t*>(region.base() + region.size_bytes() - 1));
      }
    }
  }
  EXPECT_NE(links, 0U);
}

}  // namespace
}  // namespace faultline::glue::memif_handshake_test
