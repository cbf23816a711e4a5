// SPDX-License-Identifier: BSD-3-Clause
// Commands of the rdma_cm device as librdmacm issues them: their responses and their events.
#include <chrono>
#include <filesystem>
#include <iterator>
#include <latch>
#include <set>
#include <thread>

#include <sys/wait.h>

#include "tests/hang_limit.hpp"
#include "tests/unit/abi/rdma_cm_fixture.hpp"

namespace faultline::abi::test {
namespace {

TEST_F(RdmaCm, ConnectsAndTellsBothSidesTheSame) {
  Channel server, client;
  const uint32_t listener = listening(server, 1);
  const uint32_t active = resolved(client, 2);
  EXPECT_EQ(client.connect(active, parameters(0x111, "hello")), 0);

  const auto request = server.expect(CmEvent::connect_request);
  EXPECT_EQ(request.uid, 1U);
  EXPECT_NE(request.id, listener);
  EXPECT_EQ(request.param.conn.qp_num, 0x111U);
  EXPECT_EQ(text_of(request.param.conn), "hello");
  // Bytes of a REQ's 92 that remain after the addresses (A11).
  EXPECT_EQ(request.param.conn.private_data_len, 56);
  // As seen from the server: initiator and responder are swapped.
  EXPECT_EQ(request.param.conn.responder_resources, 2);
  EXPECT_EQ(request.param.conn.initiator_depth, 4);
  EXPECT_EQ(request.param.conn.retry_count, 5);
  EXPECT_EQ(request.param.conn.rnr_retry_count, 6);

  // librdmacm prepares its QP before it accepts.
  ib_uverbs_qp_attr passive_rtr{}, passive_rts{}, init{};
  EXPECT_EQ(server.attributes(request.id, IBV_QPS_INIT, init), 0);
  EXPECT_EQ(init.qp_access_flags, static_cast<uint32_t>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                        IBV_ACCESS_REMOTE_ATOMIC));
  EXPECT_EQ(server.attributes(request.id, IBV_QPS_RTR, passive_rtr), 0);
  EXPECT_EQ(server.attributes(request.id, IBV_QPS_RTS, passive_rts), 0);
  EXPECT_EQ(passive_rtr.dest_qp_num, 0x111U);
  EXPECT_NE(passive_rtr.qp_attr_mask & IBV_QP_MIN_RNR_TIMER, 0U);
  EXPECT_EQ(passive_rtr.min_rnr_timer, 0);  // 655 ms, as the kernel's
  EXPECT_EQ(passive_rtr.ah_attr.grh.dgid[15], 1);
  EXPECT_EQ(server.accept(request.id, 3, parameters(0x222, "welcome")), 0);

  const auto response = client.expect(CmEvent::connect_response);
  EXPECT_EQ(response.uid, 2U);
  EXPECT_EQ(response.param.conn.qp_num, 0x222U);
  EXPECT_EQ(text_of(response.param.conn), "welcome");
  ib_uverbs_qp_attr active_rtr{}, active_rts{};
  EXPECT_EQ(client.attributes(active, IBV_QPS_RTR, active_rtr), 0);
  EXPECT_EQ(client.attributes(active, IBV_QPS_RTS, active_rts), 0);
  EXPECT_EQ(active_rtr.dest_qp_num, 0x222U);
  EXPECT_EQ(active_rtr.rq_psn, passive_rts.sq_psn);
  EXPECT_EQ(active_rts.sq_psn, passive_rtr.rq_psn);
  EXPECT_EQ(active_rts.retry_cnt, 5);
  EXPECT_EQ(active_rts.max_rd_atomic, 2);
  EXPECT_EQ(client.accept(active, 0, {}), 0);
  EXPECT_EQ(server.expect(CmEvent::established).uid, 3U);

  EXPECT_EQ(client.disconnect(active), 0);
  EXPECT_EQ(server.expect(CmEvent::disconnected).uid, 3U);
  EXPECT_EQ(server.disconnect(request.id), 0);
  EXPECT_EQ(client.expect(CmEvent::disconnected).uid, 2U);

  uint32_t reported = 0;
  EXPECT_EQ(client.destroy(active, &reported), 0);
  EXPECT_GE(reported, 4U);  // librdmacm waits until that many are acknowledged
  EXPECT_EQ(client.destroy(active), ENOENT);
}

TEST_F(RdmaCm, SaysWhereAnIdentifierIs) {
  Channel client;
  const uint32_t id = resolved(client, 1);
  rdma_ucm_query_route_resp route{};
  rdma_ucm_query fields{};
  fields.id = id;
  fields.response = reinterpret_cast<uint64_t>(&route);
  EXPECT_EQ(client.command(RDMA_USER_CM_CMD_QUERY_ROUTE, fields, sizeof route), 0);
  EXPECT_EQ(route.num_paths, 1U);
  EXPECT_EQ(route.port_num, 1);
  EXPECT_NE(route.node_guid, 0U);
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(route.src_addr).sin_addr.s_addr, inet_addr(kClient));
  EXPECT_NE(reinterpret_cast<const sockaddr_in&>(route.src_addr).sin_port, 0);
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(route.dst_addr).sin_port, htons(kPort));
  EXPECT_EQ(route.ib_route[0].dgid[15], 2);

  rdma_ucm_query_addr_resp addresses{};
  fields.response = reinterpret_cast<uint64_t>(&addresses);
  fields.option = RDMA_USER_CM_QUERY_ADDR;
  EXPECT_EQ(client.command(RDMA_USER_CM_CMD_QUERY, fields, sizeof addresses), 0);
  EXPECT_EQ(addresses.src_size, sizeof(sockaddr_in));
  EXPECT_EQ(addresses.node_guid, route.node_guid);
  fields.option = RDMA_USER_CM_QUERY_GID;
  EXPECT_EQ(client.command(RDMA_USER_CM_CMD_QUERY, fields, sizeof addresses), 0);
  EXPECT_EQ(addresses.dst_size, 48);
  struct {
    uint32_t count, reserved;
    ib_path_rec_data path;
  } paths{};
  fields.response = reinterpret_cast<uint64_t>(&paths);
  fields.option = RDMA_USER_CM_QUERY_PATH;
  EXPECT_EQ(client.command(RDMA_USER_CM_CMD_QUERY, fields, sizeof paths), 0);
  EXPECT_EQ(paths.count, 1U);
  fields.option = 9;
  EXPECT_EQ(client.command(RDMA_USER_CM_CMD_QUERY, fields, sizeof paths), ENOSYS);
}

TEST_F(RdmaCm, RejectsWithTheProgramsWords) {
  Channel server, client;
  listening(server, 1);
  const uint32_t active = resolved(client, 2);
  EXPECT_EQ(client.connect(active, parameters(0x111, "")), 0);
  rdma_ucm_reject fields{};
  fields.id = server.expect(CmEvent::connect_request).id;
  std::strcpy(reinterpret_cast<char*>(fields.private_data), "no");
  fields.private_data_len = 2;
  fields.reason = 7;
  EXPECT_EQ(server.command(RDMA_USER_CM_CMD_REJECT, fields), EINVAL);
  fields.reason = 0;
  EXPECT_EQ(server.command(RDMA_USER_CM_CMD_REJECT, fields), 0);
  const auto event = client.expect(CmEvent::rejected);
  EXPECT_EQ(event.status, 28U);  // consumer defined
  EXPECT_EQ(text_of(event.param.conn), "no");
}

TEST_F(RdmaCm, NobodyListensThere) {
  Channel server, client;
  listening(server, 1);
  const uint32_t active = resolved(client, 2, RDMA_PS_TCP, 999);
  EXPECT_EQ(client.connect(active, parameters(0x111, "")), 0);
  EXPECT_EQ(client.expect(CmEvent::rejected).status, 8U);  // invalid service ID
}

TEST_F(RdmaCm, ListensOnAllDevices) {
  Channel server, client;
  const uint32_t listener = server.create(1);
  EXPECT_EQ(server.listen(listener), 0);
  rdma_ucm_query_addr_resp addresses{};
  rdma_ucm_query fields{reinterpret_cast<uint64_t>(&addresses), listener, RDMA_USER_CM_QUERY_ADDR};
  EXPECT_EQ(server.command(RDMA_USER_CM_CMD_QUERY, fields, sizeof addresses), 0);
  EXPECT_EQ(addresses.node_guid, 0U);
  const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in&>(addresses.src_addr).sin_port);
  for (const char* address : {kServer, kClient}) {  // the second address is the client's own
    const uint32_t id = client.create(2);
    EXPECT_EQ(client.resolve(id, nullptr, address, port), 0);
    client.expect(CmEvent::address_resolved);
    EXPECT_EQ(client.route(id), 0);
    client.expect(CmEvent::route_resolved);
    EXPECT_EQ(client.connect(id, parameters(0x111, "")), 0);
    server.expect(CmEvent::connect_request);
  }
}

TEST_F(RdmaCm, ResolvesAServiceOfDatagrams) {
  Channel server, client;
  listening(server, 1, RDMA_PS_UDP);
  for (const bool accepted : {true, false}) {
    const uint32_t active = resolved(client, 2, RDMA_PS_UDP);
    EXPECT_EQ(client.connect(active, parameters(0, "who")), 0);
    const auto request = server.expect(CmEvent::connect_request);
    EXPECT_EQ(std::memcmp(request.param.ud.private_data, "who", 3), 0);
    EXPECT_EQ(request.param.ud.private_data_len, 180);
    if (accepted) {
      EXPECT_EQ(server.accept(request.id, 3, parameters(0x333, "me")), 0);
      const auto event = client.expect(CmEvent::established);
      EXPECT_EQ(event.param.ud.qp_num, 0x333U);
      EXPECT_EQ(event.param.ud.qkey, kDatagramQkey);
      EXPECT_EQ(event.param.ud.ah_attr.grh.dgid[15], 2);
      EXPECT_EQ(std::memcmp(event.param.ud.private_data, "me", 2), 0);
    } else {
      rdma_ucm_reject fields{};
      fields.id = request.id;
      EXPECT_EQ(server.command(RDMA_USER_CM_CMD_REJECT, fields), 0);
      EXPECT_EQ(client.expect(CmEvent::unreachable).status, 2U);  // IBA 12.11.2: rejected
    }
  }
}

TEST_F(RdmaCm, JoinsAndLeavesGroups) {
  Channel channel;
  const uint32_t id = channel.create(1, RDMA_PS_UDP);
  EXPECT_EQ(channel.bind(id, kClient, 0), 0);
  rdma_ucm_create_id_resp answer{};
  rdma_ucm_join_mcast fields{};
  fields.response = reinterpret_cast<uint64_t>(&answer);
  fields.uid = 77;
  fields.id = id;
  fields.addr_size = sizeof(sockaddr_in);
  Channel::set(reinterpret_cast<sockaddr_in6&>(fields.addr), "239.1.2.3", 0);
  const auto join = [&] { return channel.command(RDMA_USER_CM_CMD_JOIN_MCAST, fields, sizeof answer); };
  EXPECT_EQ(join(), 0);
  const auto event = channel.expect(CmEvent::multicast_join);
  EXPECT_EQ(event.uid, 77U);
  EXPECT_EQ(event.param.ud.qp_num, 0xffffffU);
  EXPECT_EQ(event.param.ud.qkey, kDatagramQkey);
  const wire::Gid group = wire::Gid::from_ipv4(0xef010203);
  EXPECT_EQ(std::memcmp(event.param.ud.ah_attr.grh.dgid, group.bytes.data(), 16), 0);

  rdma_ucm_destroy_id_resp left{};
  rdma_ucm_destroy_id leave{reinterpret_cast<uint64_t>(&left), answer.id, 0};
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, sizeof left), 0);
  EXPECT_EQ(left.events_reported, 1U);
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, sizeof left), ENOENT);

  fields.join_flags = 2;
  EXPECT_EQ(join(), EINVAL);
  fields.join_flags = 0;
  fields.addr_size = 3;
  EXPECT_EQ(join(), EINVAL);
  fields.addr_size = sizeof(sockaddr_in);
  Channel::set(reinterpret_cast<sockaddr_in6&>(fields.addr), "198.18.0.2", 0);
  EXPECT_EQ(join(), EINVAL);
}

TEST_F(RdmaCm, MovesAnIdentifierWithItsEvents) {
  Channel one, two;
  const uint32_t id = one.create(1);
  EXPECT_EQ(one.resolve(id, kClient, kServer, kPort), 0);
  EXPECT_TRUE(one.readable(faultline::test::hang_ms()));
  rdma_ucm_migrate_resp answer{};
  rdma_ucm_migrate_id fields{reinterpret_cast<uint64_t>(&answer), id, static_cast<uint32_t>(one.number())};
  EXPECT_EQ(two.command(RDMA_USER_CM_CMD_MIGRATE_ID, fields, sizeof answer), 0);
  EXPECT_EQ(answer.events_reported, 0U);
  EXPECT_FALSE(one.readable(0));
  two.expect(CmEvent::address_resolved);
  EXPECT_EQ(one.route(id), EINVAL);  // the identifier has moved to the other descriptor
  EXPECT_EQ(two.route(id), 0);
  two.expect(CmEvent::route_resolved);
  fields.fd = 100'000;
  EXPECT_EQ(two.command(RDMA_USER_CM_CMD_MIGRATE_ID, fields, sizeof answer), ENOENT);
  fields.fd = 0;  // a file that is not an rdma_cm descriptor
  EXPECT_EQ(two.command(RDMA_USER_CM_CMD_MIGRATE_ID, fields, sizeof answer), EINVAL);
}

TEST_F(RdmaCm, TakesEventsOfTheProgram) {
  constexpr uint32_t kResolveIbService = 23, kWriteCmEvent = 24, kUid = 7;
  struct Fields {  // rdma_ucm_write_cm_event
    uint32_t id, reserved, event, status;
    uint64_t argument;
  };
  Channel channel, other;
  const uint32_t id = channel.create(kUid);
  Fields fields{id, 0, static_cast<uint32_t>(CmEvent::user), static_cast<uint32_t>(-EPIPE),
                0x123456789abcdef0};
  EXPECT_EQ(channel.command(kWriteCmEvent, fields), 0);
  rdma_ucm_event_resp event = channel.expect(CmEvent::user);
  EXPECT_EQ(event.uid, kUid);
  EXPECT_EQ(event.id, id);
  EXPECT_EQ(static_cast<int>(event.status), -EPIPE);
  EXPECT_EQ(std::memcmp(&event.param, &fields.argument, sizeof fields.argument), 0);
  fields.event = static_cast<uint32_t>(CmEvent::internal);  // of rdma_resolve_addrinfo(3)
  EXPECT_EQ(channel.command(kWriteCmEvent, fields), 0);
  channel.expect(CmEvent::internal);
  uint32_t reported = 0;
  EXPECT_EQ(other.command(kWriteCmEvent, fields), EINVAL);
  fields.event = static_cast<uint32_t>(CmEvent::established);
  EXPECT_EQ(channel.command(kWriteCmEvent, fields), EINVAL);
  fields = {4711, 0, static_cast<uint32_t>(CmEvent::user), 0, 0};
  EXPECT_EQ(channel.command(kWriteCmEvent, fields), ENOENT);
  EXPECT_FALSE(channel.readable(0));
  // RoCE has no service records; without a device even that is unknown.
  EXPECT_EQ(channel.command(kResolveIbService, id), EINVAL);
  EXPECT_EQ(channel.bind(id, kServer, 0), 0);
  EXPECT_EQ(channel.command(kResolveIbService, id), EOPNOTSUPP);
  EXPECT_EQ(channel.destroy(id, &reported), 0);
  EXPECT_EQ(reported, 2U);
}

TEST_F(RdmaCm, TellsThePeerWhenTheDescriptorIsClosed) {
  Channel server, client;
  connected(client, server);
  client.close();
  EXPECT_EQ(server.expect(CmEvent::disconnected).uid, 3U);
}

TEST_F(RdmaCm, ForgetsRequestsWithTheirListener) {
  Channel server, client;
  const uint32_t listener = listening(server, 1);
  const uint32_t active = resolved(client, 2);
  EXPECT_EQ(client.connect(active, parameters(0x111, "")), 0);
  EXPECT_TRUE(server.readable(faultline::test::hang_ms()));
  EXPECT_EQ(server.destroy(listener), 0);
  EXPECT_FALSE(server.readable(0));
  client.expect(CmEvent::rejected);
}

TEST_F(RdmaCm, StaysWhatItIsWhenAChildClosesItsOwn) {
  Channel channel;
  const uint32_t id = channel.create(1);
  // Like the C library's close in Python's subprocess, which runs in the memory of its parent.
  const pid_t child = vfork();
  if (child == 0) {
    remove_descriptors(3, ~0U);
    _exit(0);
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(channel.bind(id, kClient, 0), 0);

  // A child of fork has the descriptor number, but not the object that it refers to.
  const pid_t forked = fork();
  if (forked == 0) _exit(find_descriptor(channel.number()) == nullptr ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(forked, &status, 0), forked);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(channel.destroy(id), 0);
}

TEST_F(RdmaCm, IsReadableOnlyWhileThereAreEvents) {
  Channel client(O_NONBLOCK);
  rdma_ucm_event_resp event{};
  EXPECT_FALSE(client.readable(0));
  EXPECT_EQ(client.take(event), EAGAIN);
  resolved(client, 1);
  EXPECT_FALSE(client.readable(0));
  EXPECT_EQ(client.take(event), EAGAIN);
}

TEST_F(RdmaCm, SaysThatNobodyAnswers) {
  Channel client;
  verbs::test::faults().neighbours_silent = true;
  const uint32_t id = client.create(1);
  EXPECT_EQ(client.resolve(id, kClient, kServer, kPort), 0);
  const auto event = client.expect(CmEvent::address_error);
  verbs::test::faults().neighbours_silent = false;
  EXPECT_EQ(static_cast<int>(event.status), -ETIMEDOUT);
  EXPECT_EQ(client.resolve(id, kClient, kServer, kPort), 0);  // it may try again
  client.expect(CmEvent::address_resolved);
}

TEST_F(RdmaCm, TellsThatADeviceIsLost) {
  Channel server, client;
  const Pair pair = connected(client, server);
  const uint32_t bound = client.create(9);
  EXPECT_EQ(client.bind(bound, kClient, 0), 0);
  const uint32_t unbound = client.create(10);
  verbs::test::raise_device_event("mem0", transport::AsyncEvent::device_fatal);
  std::set<uint64_t> told{client.expect(CmEvent::device_removal).uid,
                          client.expect(CmEvent::device_removal).uid};
  EXPECT_EQ(told, (std::set<uint64_t>{2, 9}));
  EXPECT_FALSE(client.readable(0));
  EXPECT_FALSE(server.readable(0)) << "another device's";
  for (const uint32_t id : {pair.active, bound, unbound}) EXPECT_EQ(client.destroy(id), 0);
}

TEST_F(RdmaCm, EndsBackgroundThreadsThatAreIdle) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator{});
  };
  CmCore& core = CmCore::instance();
  core.run_in_background([] {});
  const auto before = threads();
  constexpr int kTasks = 6;
  std::latch all_run(kTasks);
  for (int i = 0; i < kTasks; ++i) core.run_in_background([&] { all_run.arrive_and_wait(); });
  all_run.wait();
  EXPECT_GE(threads(), before + kTasks - 2);
  for (int i = 0; i < 200 && threads() > before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(threads(), before);
}

TEST_F(RdmaCm, LetsDevicesGoWithTheLastDescriptor) {
  {
    Channel server, client;
    connected(client, server);
    EXPECT_EQ(verbs::test::running_devices(), 2);
  }
  // A thread that drives the devices may still be in a call.
  constexpr int kPatienceMs = 20'000;
  for (int waited = 0; verbs::test::running_devices() != 0 && waited < kPatienceMs; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(verbs::test::running_devices(), 0);
}

}  // namespace
}  // namespace faultline::abi::test
