// SPDX-License-Identifier: BSD-3-Clause
// A memif link whose peer writes garbage to the shared memory. Each round is compared with what the protocol
// requires for that garbage: a frame, or the end of the link.
#include "pmd_glue/memif/memif_link.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "tests/unit/glue/memif_peer.hpp"

namespace faultline::glue::memif_link_test {
namespace {

using memif::Descriptor;
using Role = MemifLink::Role;
using tests::MemifPeer;

constexpr uint16_t kPort = 7;

/// Returns a million rounds for a soak run; otherwise enough for each kind of garbage to occur often.
size_t rounds() {
  return std::getenv("FAULTLINE_SOAK") != nullptr ? 1'000'000 : 5'000;
}

class MemifLinks : public testing::Test {
 protected:
  static constexpr unsigned kFrames = 1023;

  static void SetUpTestSuite() {
    static Config config;
    config.path = "test";
    config.eal.memory_mib = 128;
    std::string error;
    ASSERT_TRUE(start_eal(config, error)) << error;
    pool = create_frame_pool("memif_frames", kFrames);
    ASSERT_NE(pool, nullptr);
  }
  void TearDown() override { EXPECT_EQ(rte_mempool_avail_count(pool), kFrames) << "a frame leaked"; }

  static rte_mbuf* frame_of(size_t length_bytes, uint8_t value) {
    rte_mbuf* const frame = rte_pktmbuf_alloc(pool);
    std::fill_n(rte_pktmbuf_mtod(frame, uint8_t*), length_bytes, value);
    set_length(frame, length_bytes);
    return frame;
  }

  static inline rte_mempool* pool = nullptr;
  std::mt19937 random{1};
};

TEST_F(MemifLinks, CarryFramesBothWays) {
  MemifPeer shared;
  MemifLink server(Role::server, shared.geometry(), kBufferBytes);
  MemifLink client(Role::client, shared.geometry(), kBufferBytes);
  server.begin();
  client.begin();
  for (auto [from, to] : {std::pair{&server, &client}, std::pair{&client, &server}})
    for (int round = 0; round < 1000; ++round) {
      std::array<rte_mbuf*, 20> sent;
      for (size_t i = 0; i < sent.size(); ++i)
        sent[i] = frame_of(60 + 200 * i, static_cast<uint8_t>(round + i));
      ASSERT_EQ(from->transmit(sent), std::min<size_t>(sent.size(), shared.ring_size()));
      std::array<rte_mbuf*, 64> received;
      ASSERT_EQ(to->receive(pool, kPort, received), sent.size());
      for (size_t i = 0; i < sent.size(); ++i) {
        const auto bytes = bytes_of(received[i]);
        EXPECT_EQ(bytes.size(), 60 + 200 * i);
        EXPECT_TRUE(
            std::ranges::all_of(bytes, [&](uint8_t b) { return b == static_cast<uint8_t>(round + i); }));
        EXPECT_EQ(received[i]->port, kPort);
        EXPECT_EQ(received[i]->pkt_len, bytes.size());
        rte_pktmbuf_free(received[i]);
      }
    }
  EXPECT_EQ(server.violation(), nullptr);
  EXPECT_EQ(client.violation(), nullptr);
}

TEST_F(MemifLinks, TakeNoMoreThanTheRingHolds) {
  MemifPeer shared;
  MemifLink client(Role::client, shared.geometry(), kBufferBytes);
  client.begin();
  std::vector<rte_mbuf*> frames(shared.ring_size() + 5);
  for (rte_mbuf*& frame : frames) frame = frame_of(100, 1);
  EXPECT_EQ(client.transmit(frames), shared.ring_size());
  EXPECT_EQ(client.violation(), nullptr);
  rte_pktmbuf_free_bulk(frames.data() + shared.ring_size(), 5);
}

/// A peer with smaller buffers receives a long frame in several.
TEST_F(MemifLinks, ChainDescriptorsForAFrameThatNeedsThem) {
  MemifPeer shared;
  MemifLink server(Role::server, shared.geometry(), kBufferBytes);
  server.begin();
  constexpr uint32_t kSmallBytes = 400;
  for (uint32_t slot = 0; slot < shared.ring_size(); ++slot)
    shared.to_client(slot) = {.flags = 0,
                              .region = 0,
                              .length = kSmallBytes,
                              .offset = static_cast<uint32_t>(shared.buffers() + slot * kSmallBytes),
                              .metadata = 0};
  shared.to_client_header().head = static_cast<uint16_t>(shared.ring_size());
  rte_mbuf* frame = frame_of(1000, 9);
  ASSERT_EQ(server.transmit({&frame, 1}), 1U);
  EXPECT_EQ(shared.to_client_header().tail, 3);
  EXPECT_EQ(shared.to_client(0).flags, memif::kNext);
  EXPECT_EQ(shared.to_client(2).flags, 0);
  EXPECT_EQ(shared.to_client(2).length, 200U);

  // The same in the other direction.
  for (uint32_t slot = 0; slot < 3; ++slot) shared.to_server(slot) = shared.to_client(slot);
  shared.to_server_header().head = 3;
  std::array<rte_mbuf*, 8> received;
  ASSERT_EQ(server.receive(pool, kPort, received), 1U);
  EXPECT_EQ(received[0]->data_len, 1000);
  EXPECT_TRUE(std::ranges::all_of(bytes_of(received[0]), [](uint8_t byte) { return byte == 9; }));
  rte_pktmbuf_free(received[0]);
  EXPECT_EQ(server.violation(), nullptr);
}

TEST_F(MemifLinks, DropAFrameThatNoBufferHolds) {
  MemifPeer shared;
  MemifLink server(Role::server, shared.geometry(), kBufferBytes);
  std::atomic<uint64_t> of_the_port{7};  // of earlier links
  server.count_oversized_in(of_the_port);
  server.begin();
  for (uint32_t slot = 0; slot < 2; ++slot)
    shared.to_server(slot) = {.flags = slot == 0 ? memif::kNext : uint16_t{0},
                              .region = 0,
                              .length = kBufferBytes,
                              .offset = static_cast<uint32_t>(shared.buffers()),
                              .metadata = 0};
  shared.to_server(2) = {.flags = 0,
                         .region = 0,
                         .length = 100,
                         .offset = static_cast<uint32_t>(shared.buffers()),
                         .metadata = 0};
  shared.to_server_header().head = 3;
  std::array<rte_mbuf*, 8> received;
  ASSERT_EQ(server.receive(pool, kPort, received), 1U);
  EXPECT_EQ(received[0]->data_len, 100);
  rte_pktmbuf_free(received[0]);
  EXPECT_EQ(of_the_port.load(), 8U);
  EXPECT_EQ(server.violation(), nullptr);
}

/// A chain must end before the head index.
TEST_F(MemifLinks, EndWithAChainWithoutAnEnd) {
  MemifPeer shared;
  MemifLink server(Role::server, shared.geometry(), kBufferBytes);
  server.begin();
  for (uint32_t slot = 0; slot < shared.ring_size(); ++slot)
    shared.to_server(slot) = {.flags = slot < 4 ? memif::kNext : uint16_t{0},
                              .region = 0,
                              .length = 10,
                              .offset = static_cast<uint32_t>(shared.buffers()),
                              .metadata = 0};
  shared.to_server_header().head = 4;
  std::array<rte_mbuf*, 8> received;
  EXPECT_EQ(server.receive(pool, kPort, received), 0U);
  EXPECT_NE(server.violation(), nullptr);
}

TEST_F(MemifLinks, AServerReadsWhatLiesInTheRegionAndNothingElse) {
  for (size_t round = 0; round < rounds(); ++round) {
    MemifPeer shared;
    MemifLink server(Role::server, shared.geometry(), kBufferBytes);
    server.begin();
    const Descriptor garbage = shared.random_descriptor(random);
    const auto head = static_cast<uint16_t>(random() % 4 == 0 ? random() : 1);
    shared.to_server(0) = garbage;
    shared.to_server_header().head = head;
    std::array<rte_mbuf*, 1> received;
    const size_t count = server.receive(pool, kPort, received);

    const bool head_is_right = head <= shared.ring_size();
    const bool is_right =
        garbage.region == 0 && uint64_t{garbage.offset} + garbage.length <= shared.size_bytes();
    const bool ends = (garbage.flags & memif::kNext) == 0;
    if (head == 0) {
      ASSERT_EQ(count, 0U);
      ASSERT_EQ(server.violation(), nullptr);
    } else if (!head_is_right || !is_right) {
      ASSERT_EQ(count, 0U) << round;
      ASSERT_NE(server.violation(), nullptr) << round;
      // The link stays closed, whatever the ring holds now.
      shared.to_server(0) = {};
      shared.to_server_header().head = 1;
      ASSERT_EQ(server.receive(pool, kPort, received), 0U);
    } else if (ends) {
      ASSERT_EQ(server.violation(), nullptr) << round;
      const bool fits = garbage.length <= kBufferBytes;
      ASSERT_EQ(count, fits ? 1U : 0U) << round;
      ASSERT_EQ(server.oversized(), fits ? 0U : 1U) << round;
      if (fits) {
        ASSERT_EQ(received[0]->data_len, garbage.length);
        ASSERT_EQ(std::memcmp(rte_pktmbuf_mtod(received[0], uint8_t*), shared.base() + garbage.offset,
                              std::min<size_t>(garbage.length, 1)),
                  0);
      }
    }
    if (count != 0) rte_pktmbuf_free(received[0]);
  }
}

TEST_F(MemifLinks, AServerWritesWhatLiesInTheRegionAndNothingElse) {
  for (size_t round = 0; round < rounds(); ++round) {
    MemifPeer shared;
    MemifLink server(Role::server, shared.geometry(), kBufferBytes);
    server.begin();
    const Descriptor garbage = shared.random_descriptor(random);
    const auto head = static_cast<uint16_t>(random() % 4 == 0 ? random() : 1);
    shared.to_client(0) = garbage;
    shared.to_client_header().head = head;
    rte_mbuf* frame = frame_of(60, 0x5a);
    const size_t sent = server.transmit({&frame, 1});

    const bool is_right = garbage.region == 0 && garbage.length != 0 &&
                          uint64_t{garbage.offset} + garbage.length <= shared.size_bytes();
    if (head == 0) {
      ASSERT_EQ(server.violation(), nullptr);
    } else if (head > shared.ring_size() || !is_right) {
      ASSERT_EQ(sent, 0U) << round;
      ASSERT_NE(server.violation(), nullptr) << round;
    } else if (garbage.length >= 60) {
      ASSERT_EQ(sent, 1U) << round;
      ASSERT_EQ(server.violation(), nullptr);
    }
    if (sent == 0) rte_pktmbuf_free(frame);
  }
}

/// The server can also write to a client's descriptors and to both of its indices.
TEST_F(MemifLinks, AClientKeepsToItsOwnBuffers) {
  MemifPeer shared;
  for (size_t round = 0; round < rounds(); ++round) {
    MemifLink client(Role::client, shared.geometry(), kBufferBytes);
    shared.to_client_header() = shared.to_server_header() = {};
    client.begin();
    // Regardless of the offset and region that the server wrote.
    for (uint32_t slot = 0; slot < 4; ++slot) {
      shared.to_client(slot) = shared.random_descriptor(random);
      shared.to_server(slot) = shared.random_descriptor(random);
    }
    const Descriptor garbage = shared.to_client(0);
    const auto tail = static_cast<uint16_t>(random() % 4 == 0 ? random() : 1);
    shared.to_client_header().tail = tail;
    shared.to_client_header().head = static_cast<uint16_t>(random());
    std::array<rte_mbuf*, 1> received;
    const size_t count = client.receive(pool, kPort, received);
    if (tail == 0) {
      ASSERT_EQ(count, 0U);
      ASSERT_EQ(client.violation(), nullptr);
    } else if (tail > shared.ring_size() || garbage.length > kBufferBytes) {
      ASSERT_EQ(count, 0U) << round;
      ASSERT_NE(client.violation(), nullptr) << round;
    } else if ((garbage.flags & memif::kNext) == 0) {
      ASSERT_EQ(count, 1U) << round;
      ASSERT_EQ(received[0]->data_len, garbage.length) << round;
      // The buffer is returned to the client unchanged.
      ASSERT_EQ(shared.to_client(0).length, kBufferBytes);
      ASSERT_EQ(shared.to_client(0).region, 0);
    }
    if (count != 0) rte_pktmbuf_free(received[0]);

    MemifLink sender(Role::client, shared.geometry(), kBufferBytes);
    shared.to_server_header().tail = static_cast<uint16_t>(random() % 2 == 0 ? 0 : random());
    shared.to_server_header().head = static_cast<uint16_t>(random());
    rte_mbuf* frame = frame_of(60, 0x5a);
    const auto ahead = static_cast<uint16_t>(0 - shared.to_server_header().tail);
    const size_t sent = sender.transmit({&frame, 1});
    if (ahead > shared.ring_size()) {
      ASSERT_NE(sender.violation(), nullptr) << round;
    } else if (ahead < shared.ring_size()) {
      ASSERT_EQ(sent, 1U) << round;
      const Descriptor& written = shared.to_server(0);
      ASSERT_EQ(written.length, 60U);
      ASSERT_GE(written.offset, shared.buffers());
      ASSERT_EQ(shared.base()[written.offset], 0x5a);
    }
    if (sent == 0) rte_pktmbuf_free(frame);
  }
}

}  // namespace
}  // namespace faultline::glue::memif_link_test
