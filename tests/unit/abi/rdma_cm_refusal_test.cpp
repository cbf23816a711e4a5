// SPDX-License-Identifier: BSD-3-Clause
// Requests that the rdma_cm device refuses, with the kernel's errno.
#include <array>
#include <random>

#include "tests/unit/abi/rdma_cm_fixture.hpp"

namespace faultline::abi::test {
namespace {

TEST_F(RdmaCm, RefusesWhatTheKernelRefuses) {
  Channel channel, other;
  const uint32_t id = channel.create(1);
  // Command header.
  const uint64_t nothing = 0;
  EXPECT_EQ(channel.write(&nothing, 7), EINVAL);
  const rdma_ucm_cmd_hdr unknown{99, 0, 0}, option{RDMA_USER_CM_CMD_GET_OPTION, 0, 0}, longer{0, 100, 4};
  EXPECT_EQ(channel.write(&unknown, sizeof unknown), EINVAL);
  EXPECT_EQ(channel.write(&option, sizeof option), ENOSYS);
  EXPECT_EQ(channel.write(&longer, sizeof longer), EINVAL);
  EXPECT_EQ(channel.write(nullptr, 16), EFAULT);
  // Response buffers that are too small or not writable.
  rdma_ucm_create_id create{};
  create.ps = RDMA_PS_TCP;
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_CREATE_ID, create, 2), ENOSPC);
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_CREATE_ID, create, sizeof(rdma_ucm_create_id_resp)), EFAULT);
  create.ps = 1;
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_CREATE_ID, create, sizeof(rdma_ucm_create_id_resp)), EINVAL);
  // Identifiers.
  EXPECT_EQ(channel.listen(4711), ENOENT);
  EXPECT_EQ(other.listen(id), EINVAL);
  EXPECT_EQ(other.destroy(id), EINVAL);
  // Addresses.
  EXPECT_EQ(channel.bind(id, "198.18.0.77", 0), EADDRNOTAVAIL);
  rdma_ucm_bind bind{};
  bind.id = id;
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_BIND, bind), EINVAL);
  rdma_ucm_resolve_addr resolve{};
  resolve.id = id;
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve), EINVAL);
  // Commands in the wrong state.
  ib_uverbs_qp_attr attributes{};
  EXPECT_EQ(channel.attributes(id, IBV_QPS_INIT, attributes), EINVAL);
  EXPECT_EQ(channel.route(id), EINVAL);
  EXPECT_EQ(channel.connect(id, parameters(1, "")), EINVAL);
  EXPECT_EQ(channel.accept(id, 1, parameters(1, "")), EINVAL);
  EXPECT_EQ(channel.disconnect(id), EINVAL);
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{id, IBV_EVENT_COMM_EST}), EINVAL);
  EXPECT_EQ(channel.bind(id, kClient, 0), 0);
  EXPECT_EQ(channel.bind(id, kClient, 0), EINVAL);
  EXPECT_EQ(channel.attributes(id, IBV_QPS_RTS + 9, attributes), EINVAL);
  EXPECT_EQ(channel.listen(id), 0);
  EXPECT_EQ(channel.resolve(id, nullptr, kServer, kPort), EINVAL);
  // The port is in use.
  const uint32_t second = channel.create(2), third = channel.create(3);
  EXPECT_EQ(channel.bind(second, kServer, kPort), 0);
  EXPECT_EQ(channel.bind(third, kServer, kPort), EADDRINUSE);
  // More private data than a REQ holds.
  const uint32_t active = resolved(channel, 4);
  EXPECT_EQ(channel.connect(active, parameters(1, std::string(57, 'x').c_str())), EINVAL);
  EXPECT_EQ(channel.connect(active, parameters(0x1000000, "")), EINVAL);
  rdma_ucm_conn_param invalid = parameters(1, "");
  invalid.valid = 0;
  EXPECT_EQ(channel.connect(active, invalid), EINVAL);
  EXPECT_EQ(channel.connect(active, parameters(1, std::string(56, 'x').c_str())), 0);
}

TEST_F(RdmaCm, SetsOptions) {
  Channel channel;
  const uint32_t id = channel.create(1);
  const auto set = [&](uint32_t level, uint32_t name, const void* value, uint32_t length) {
    rdma_ucm_set_option fields{};
    fields.id = id;
    fields.level = level;
    fields.optname = name;
    fields.optlen = length;
    fields.optval = reinterpret_cast<uint64_t>(value);
    return channel.command(RDMA_USER_CM_CMD_SET_OPTION, fields);
  };
  const uint8_t byte = 20, too_much = 32;
  const int flag = 1;
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &flag, 4), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &flag, 4), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &flag, 4), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), 0);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &too_much, 1), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, 9, &byte, 1), ENOSYS);
  EXPECT_EQ(set(9, 0, &byte, 1), ENOSYS);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, nullptr, 1), EFAULT);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1U << 20), EINVAL);
}

/// Every command with every length. The words are zero, all ones, an identifier, small, or the address of a
/// response buffer. Each command returns an errno, and the device works afterwards.
TEST_F(RdmaCm, SurvivesAnyCommand) {
  constexpr uint32_t kRounds = 30'000;
  constexpr uint32_t kBeyondTheLast = RDMA_USER_CM_CMD_JOIN_MCAST + 3;
  Channel channel(O_NONBLOCK);
  std::minstd_rand random(5);
  std::array<uint32_t, 90> words{};
  std::array<uint8_t, 4096> answer{};
  const auto place = reinterpret_cast<uint64_t>(answer.data());
  uint32_t done = 0;
  uint32_t id = channel.create(1);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t& word : words) {
      const auto any = static_cast<uint32_t>(random());
      const std::array<uint32_t, 6> choices{0, ~0U, id, any % 32, any, AF_INET};
      word = choices[random() % choices.size()];
    }
    if (random() % 4 != 0) std::memcpy(&words[2 + 2 * (random() % 2)], &place, sizeof place);
    if (random() % 2 != 0) words[4] = id;
    const rdma_ucm_cmd_hdr header{static_cast<uint32_t>(random() % kBeyondTheLast),
                                  static_cast<uint16_t>(random() % 400),
                                  static_cast<uint16_t>(random() % 400)};
    std::memcpy(words.data(), &header, sizeof header);
    const size_t length =
        random() % 4 == 0 ? random() % sizeof words : std::min(sizeof words, sizeof header + header.in);
    const int error = channel.write(words.data(), length);
    EXPECT_GE(error, 0);
    done += error == 0 ? 1 : 0;
    rdma_ucm_event_resp event{};
    while (channel.readable(0)) ASSERT_EQ(channel.take(event), 0);
    // Destroys the created identifiers, and `id` if it still exists.
    for (uint32_t other = 0; round % 64 == 0 && other < 100; ++other)
      static_cast<void>(channel.destroy(other));
    if (round % 64 == 0) id = channel.create(1);
  }
  EXPECT_GT(done, 100U) << "or they are all refused for one reason";
  Channel server, client;
  connected(client, server);
}

}  // namespace
}  // namespace faultline::abi::test
