// SPDX-License-Identifier: BSD-3-Clause
// The device list, open and close, and the attributes of a device.
#include <algorithm>

#include <endian.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/include/faultline/faultline.h"
#include "tests/environments/seccomp_filter.hpp"
#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::device_test {

namespace {

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(context, nullptr); }
  void TearDown() override { EXPECT_EQ(ibv_close_device(context), 0); }
  ibv_context* const context = open("mem0");
};

TEST(DeviceList, IsNullTerminatedAndNamesDevices) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(count, 2);
  EXPECT_STREQ(ibv_get_device_name(list[0]), "mem0");
  EXPECT_STREQ(ibv_get_device_name(list[1]), "mem1");
  EXPECT_NE(ibv_get_device_index(list[0]), ibv_get_device_index(list[1]));
  EXPECT_EQ(list[2], nullptr);
  EXPECT_EQ(be64toh(ibv_get_device_guid(list[0])), 0x00464cfffe000001U);
  EXPECT_EQ(list[0]->node_type, IBV_NODE_CA);
  EXPECT_EQ(list[0]->transport_type, IBV_TRANSPORT_IB);
  ibv_free_device_list(list);
}

TEST(DeviceList, ZerosFollowTheDevice) {
  ibv_device** const list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  std::array<uint8_t, 512> behind{};
  std::memcpy(behind.data(), reinterpret_cast<const uint8_t*>(list[0]) + sizeof(ibv_device), behind.size());
  EXPECT_EQ(behind, (std::array<uint8_t, 512>{}));
  ibv_free_device_list(list);
}

TEST(DeviceList, BadConfigurationIsAnErrorWithItsReason) {
  EXPECT_EQ(faultline_configure("bad.toml"), EINVAL);
  EXPECT_NE(std::string(faultline_last_error()).find("device.port.kind"), std::string::npos);
  int count = 5;
  errno = 0;
  EXPECT_EQ(ibv_get_device_list(&count), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(faultline_configure("good.toml"), 0);
}

/// In a child process, since a seccomp filter cannot be removed.
TEST(DeviceOpen, ARefusedSystemCallIsNamed) {
  for (const auto& [number, name] :
       {std::pair{long{SYS_eventfd2}, "eventfd"}, std::pair{long{SYS_memfd_create}, "memfd_create"}}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (faultline::test::refuse_calls(std::array{number}, EPERM) != 0) _exit(77);
      errno = 0;
      if (open("mem0") != nullptr || errno != EPERM) _exit(1);
      const std::string line = faultline_last_error();
      _exit(line.find(name) != std::string::npos && line.find('\n') == std::string::npos ? 0 : 2);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "the kernel refuses seccomp filters";
    EXPECT_EQ(status, 0) << name;
  }
}

TEST(Guards, AreKnownBeforeADeviceIsOpened) {
  const int count = faultline_query_guards(nullptr, 0);
  ASSERT_GE(count, 7);
  std::vector<faultline_guard> guards(static_cast<size_t>(count) + 1);
  guards.back().name = "not written";
  ASSERT_EQ(faultline_query_guards(guards.data(), static_cast<size_t>(count)), count);
  EXPECT_STREQ(guards.back().name, "not written");
  guards.pop_back();
  for (const faultline_guard& guard : guards) {
    EXPECT_STRNE(guard.name, "");
    EXPECT_STRNE(guard.text, "") << guard.name;
    if (guard.error != 0) {
      EXPECT_NE(guard.state, FAULTLINE_GUARD_WORKS) << guard.name;
    }
  }
  EXPECT_STREQ(guards[0].name, "memory hooks");
  EXPECT_EQ(guards[0].state, FAULTLINE_GUARD_MISSING) << "this program has none";
  errno = 0;
  EXPECT_EQ(faultline_query_guards(nullptr, 1), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DeviceTest, LayoutIsAsTheHeadersInlineFunctionsExpect) {
  EXPECT_EQ(context->abi_compat, __VERBS_ABI_IS_EXTENDED);
  EXPECT_EQ(verbs_get_ctx(context)->sz, sizeof(verbs_context));
  EXPECT_GE(context->num_comp_vectors, 1);
  EXPECT_GE(fcntl(context->async_fd, F_GETFD), 0);
  const int copy = dup(context->cmd_fd);
  EXPECT_GE(copy, 0);
  close(copy);
}

TEST_F(DeviceTest, RunsFromItsFirstObjectOn) {
  ibv_port_attr port{};
  ibv_device_attr attributes{};
  EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(ibv_query_device(context, &attributes), 0);
  EXPECT_EQ(running_devices(), 0) << "threads do not survive a fork after a mere query";
  ibv_pd* const pd = ibv_alloc_pd(context);
  EXPECT_EQ(running_devices(), 1);
  ibv_context* const second = open("mem0");
  ibv_pd* const other = ibv_alloc_pd(second);
  EXPECT_EQ(running_devices(), 1) << "contexts of one device share its engine";
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  EXPECT_EQ(ibv_close_device(second), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(DeviceTest, AStartThatFailsSaysWhy) {
  faults().open_fails = true;
  errno = 0;
  EXPECT_EQ(ibv_alloc_pd(context), nullptr);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_STREQ(faultline_last_error(), "no such port");
  errno = 0;
  EXPECT_EQ(ibv_create_cq(context, 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, ENODEV);
  faults().open_fails = false;
  ibv_pd* const pd = ibv_alloc_pd(context);
  ASSERT_NE(pd, nullptr) << "a later try may succeed";
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(DeviceTest, OdpCapabilitiesTellTheTruth) {
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  EXPECT_EQ(attributes.odp_caps.general_caps,
            static_cast<uint64_t>(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
  constexpr uint32_t kOnRc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                             IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
  constexpr uint32_t kFlushAndAtomicWrite = 0xc0;  // the tests "Operations" are on such memory
  EXPECT_EQ(attributes.odp_caps.per_transport_caps.rc_odp_caps, kOnRc | kFlushAndAtomicWrite);
  EXPECT_EQ(attributes.xrc_odp_caps, kOnRc | kFlushAndAtomicWrite);
  EXPECT_EQ(attributes.odp_caps.per_transport_caps.uc_odp_caps,
            static_cast<uint32_t>(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE));
  EXPECT_EQ(attributes.odp_caps.per_transport_caps.ud_odp_caps,
            static_cast<uint32_t>(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV));
  EXPECT_EQ(attributes.orig_attr.atomic_cap, IBV_ATOMIC_GLOB);
  EXPECT_EQ(attributes.hca_core_clock, 1000000U) << "kHz: timestamps are nanoseconds";
  EXPECT_EQ(attributes.completion_timestamp_mask, UINT64_MAX);
  EXPECT_EQ(attributes.orig_attr.vendor_part_id, 4119U);
  ibv_query_device_ex_input input{1};
  EXPECT_EQ(ibv_query_device_ex(context, &input, &attributes), EINVAL);
}

TEST_F(DeviceTest, QueryWritesNoMoreThanTheCallersStruct) {
  constexpr size_t kOlderBytes = offsetof(ibv_device_attr_ex, completion_timestamp_mask);
  std::array<uint8_t, sizeof(ibv_device_attr_ex)> memory{};
  memory.fill(0xa5);
  auto* const attributes = reinterpret_cast<ibv_device_attr_ex*>(memory.data());
  ASSERT_EQ(verbs_get_ctx(context)->query_device_ex(context, nullptr, attributes, kOlderBytes), 0);
  EXPECT_EQ(attributes->orig_attr.phys_port_cnt, 1);
  for (size_t i = kOlderBytes; i < memory.size(); ++i) ASSERT_EQ(memory[i], 0xa5) << i;
}

TEST_F(DeviceTest, PortSaysWhatTheDeviceCanCarry) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.active_mtu, IBV_MTU_2048);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_NE(port.flags & IBV_QPF_GRH_REQUIRED, 0);
  EXPECT_EQ(ibv_query_port(context, 0, &port), EINVAL);
  EXPECT_EQ(ibv_query_port(context, 2, &port), EINVAL);
  faults().link_down = true;
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN) << "before it runs";
  faults().link_down = false;
  ibv_pd* const pd = ibv_alloc_pd(context);
  faults().link_down = true;
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  faults().link_down = false;
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(DeviceTest, GidTableAnswersEveryIndexBelowItsLength) {
  constexpr int kGids = 2;  // IPv4 and IPv6
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  const ibv_gid zero{};
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    ibv_gid_entry entry{};
    ASSERT_EQ(ibv_query_gid(context, 1, i, &gid), 0);
    const int error = ibv_query_gid_ex(context, 1, static_cast<uint32_t>(i), &entry, 0);
    EXPECT_EQ(error, i < kGids ? 0 : ENODATA);
    EXPECT_EQ(std::memcmp(&gid, &zero, sizeof gid) == 0, i >= kGids);
    if (i < kGids) {
      EXPECT_EQ(std::memcmp(&gid, &entry.gid, sizeof gid), 0);
      EXPECT_EQ(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
      EXPECT_EQ(entry.port_num, 1U);
      EXPECT_EQ(entry.gid_index, static_cast<uint32_t>(i));
      EXPECT_EQ(entry.ndev_ifindex, 0U) << "no kernel interface";
    }
  }
  ibv_gid gid{};
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid(context, 1, port.gid_tbl_len, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context, 1, -1, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context, 2, 0, &gid), -1);
  EXPECT_EQ(ibv_query_gid_ex(context, 1, static_cast<uint32_t>(port.gid_tbl_len), &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 1), EOPNOTSUPP);
  std::array<ibv_gid_entry, kGids> table{};
  EXPECT_EQ(ibv_query_gid_table(context, table.data(), kGids, 0), kGids);
  EXPECT_EQ(table[1].gid.raw[0], 0xfe);
  EXPECT_EQ(ibv_query_gid_table(context, table.data(), kGids - 1, 0), -EINVAL);
}

TEST_F(DeviceTest, PkeyTableHasTheDefaultKey) {
  __be16 pkey = 0;
  EXPECT_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
  EXPECT_EQ(be16toh(pkey), 0xffff);
  EXPECT_EQ(ibv_query_pkey(context, 1, 1, &pkey), -1);
  EXPECT_EQ(ibv_get_pkey_index(context, 1, htobe16(0xffff)), 0);
  EXPECT_EQ(ibv_get_pkey_index(context, 1, htobe16(0x8001)), -1);
}

TEST_F(DeviceTest, CountersHaveUniqueNamesFromEveryRoom) {
  const int count = faultline_query_counters(context, nullptr, 0);
  ASSERT_GT(count, 0);
  std::vector<faultline_counter> counters(static_cast<size_t>(count));
  ASSERT_EQ(faultline_query_counters(context, counters.data(), counters.size()), count);
  std::vector<std::string> names;
  names.reserve(counters.size());
  for (const faultline_counter& counter : counters) names.emplace_back(counter.name);
  for (const char* expected : {"odp.num_page_faults", "transport.timeouts", "drop.unknown_qpn", "parse.icrc",
                               "port.rx_frames", "odp.num_odp_mrs", "transport.rnr_naks_sent"})
    EXPECT_EQ(std::count(names.begin(), names.end(), expected), 1) << expected;
  const auto arp = std::find(names.begin(), names.end(), "port.arp_in");
  ASSERT_NE(arp, names.end());
  EXPECT_EQ(counters[static_cast<size_t>(arp - names.begin())].value, 77U);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Measurement, TheBarePortIsForDevicesWithoutQps) {
  const End end("mem0");
  EXPECT_EQ(faultline_measure_port_tx(end.context, 64, 10), -EBUSY);
  ibv_context* const idle = open("mem1");
  EXPECT_EQ(faultline_measure_port_tx(idle, 64, 10), 640);
  EXPECT_EQ(faultline_measure_port_rx(idle, 10), 10);
  EXPECT_EQ(ibv_close_device(idle), 0);
  EXPECT_EQ(faultline_measure_copy_crc(4096, 5), 4096.0 * 5);  // result of the backend
}

TEST(Strings, AreRdmaCores) {
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE), "TM software rendezvous");
  EXPECT_STREQ(ibv_wc_status_str(static_cast<ibv_wc_status>(31)), "unknown");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED), "last WQE reached");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
}

TEST(Rates, ConvertBothWays) {
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_120_GBPS), 48);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_25_GBPS), -1);
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(mult_to_ibv_rate(480), IBV_RATE_1200_GBPS);
  EXPECT_EQ(mbps_to_ibv_rate(2500), IBV_RATE_2_5_GBPS);
  EXPECT_EQ(mbps_to_ibv_rate(1), IBV_RATE_MAX);
}

TEST_F(DeviceTest, WhatIsNotOfferedSaysSo) {
  ibv_pd* const pd = ibv_alloc_pd(context);
  const auto refused = [](auto* object) { return object == nullptr && errno == EOPNOTSUPP; };
  ibv_cq_init_attr_ex cq_ex{};
  cq_ex.cqe = 1;
  cq_ex.wc_flags = IBV_WC_EX_WITH_TM_INFO;
  EXPECT_TRUE(refused(ibv_create_cq_ex(context, &cq_ex)));
  // ibv_create_counters(3): counters are of flow steering rules, of which there are none.
  ibv_counters_init_attr counters{};
  EXPECT_TRUE(refused(ibv_create_counters(context, &counters)));
  ibv_flow_attr rule{};
  ibv_cq* const cq = ibv_create_cq(context, 1, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_UD;
  init.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  ibv_qp* const qp = ibv_create_qp(pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_TRUE(refused(ibv_create_flow(qp, &rule)));
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_fork_init(), 0);
  EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

}  // namespace

}  // namespace faultline::verbs::test::device_test
