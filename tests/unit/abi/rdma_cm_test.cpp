// SPDX-License-Identifier: BSD-3-Clause
// The rdma_cm device's commands as librdmacm gives them, on two devices joined in memory: what they answer,
// what they tell of, and what they refuse with the kernel's errno.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/abi/rdma_cm_channel.hpp"
#include "tests/unit/verbs/memory_backend.hpp"

namespace faultline::abi {
namespace {

constexpr const char* kServer = "198.18.0.2";
constexpr const char* kClient = "198.18.0.1";
constexpr uint16_t kPort = 7471;

/// The device's descriptor as a program has it.
class Channel {
 public:
  explicit Channel(int flags = 0)
      : number_(
            CmChannel::open({"/dev/infiniband/rdma_cm", Node{NodeKind::connection_manager, {}, 10, 58, {}}},
                            O_RDWR | O_CLOEXEC | flags)) {
    EXPECT_GE(number_, 0);
  }
  ~Channel() { close(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void close() {
    if (number_ < 0) return;
    remove_descriptor(number_);
    ::close(number_);
    number_ = -1;
  }
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] bool readable(int timeout_ms) const {
    pollfd file{number_, POLLIN, 0};
    return ::poll(&file, 1, timeout_ms) == 1;
  }

  /// 0 or the errno.
  [[nodiscard]] int write(const void* bytes, size_t length) const {
    const ssize_t written = find_descriptor(number_)->write(bytes, length);
    return written < 0 ? static_cast<int>(-written) : written == static_cast<ssize_t>(length) ? 0 : -1;
  }
  template <typename Fields>
  [[nodiscard]] int command(uint32_t number, const Fields& fields, size_t out_bytes = 0) const {
    struct {
      rdma_ucm_cmd_hdr header;
      Fields fields;
    } message{{number, sizeof(Fields), static_cast<uint16_t>(out_bytes)}, fields};
    return write(&message, sizeof message.header + sizeof fields);
  }

  [[nodiscard]] uint32_t create(uint64_t uid, uint16_t port_space = RDMA_PS_TCP) const {
    rdma_ucm_create_id_resp answer{};
    rdma_ucm_create_id fields{};
    fields.uid = uid;
    fields.response = reinterpret_cast<uint64_t>(&answer);
    fields.ps = port_space;
    fields.qp_type = IBV_QPT_RC;
    EXPECT_EQ(command(RDMA_USER_CM_CMD_CREATE_ID, fields, sizeof answer), 0);
    return answer.id;
  }
  [[nodiscard]] int destroy(uint32_t id, uint32_t* reported = nullptr) const {
    rdma_ucm_destroy_id_resp answer{};
    rdma_ucm_destroy_id fields{};
    fields.id = id;
    fields.response = reinterpret_cast<uint64_t>(&answer);
    const int error = command(RDMA_USER_CM_CMD_DESTROY_ID, fields, sizeof answer);
    if (reported != nullptr) *reported = answer.events_reported;
    return error;
  }
  [[nodiscard]] int bind(uint32_t id, const char* address, uint16_t port) const {
    rdma_ucm_bind_ip fields{};
    fields.id = id;
    set(fields.addr, address, port);
    return command(RDMA_USER_CM_CMD_BIND_IP, fields);
  }
  [[nodiscard]] int listen(uint32_t id, uint32_t backlog = 10) const {
    return command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
  }
  [[nodiscard]] int resolve(uint32_t id, const char* from, const char* to, uint16_t port) const {
    rdma_ucm_resolve_ip fields{};
    fields.id = id;
    fields.timeout_ms = 2000;
    if (from != nullptr) set(fields.src_addr, from, 0);
    set(fields.dst_addr, to, port);
    return command(RDMA_USER_CM_CMD_RESOLVE_IP, fields);
  }
  [[nodiscard]] int route(uint32_t id) const {
    return command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
  }
  [[nodiscard]] int accept(uint32_t id, uint64_t uid, const rdma_ucm_conn_param& param) const {
    rdma_ucm_accept fields{};
    fields.id = id;
    fields.uid = uid;
    fields.conn_param = param;
    return command(RDMA_USER_CM_CMD_ACCEPT, fields);
  }
  [[nodiscard]] int connect(uint32_t id, const rdma_ucm_conn_param& param) const {
    rdma_ucm_connect fields{};
    fields.id = id;
    fields.conn_param = param;
    return command(RDMA_USER_CM_CMD_CONNECT, fields);
  }
  [[nodiscard]] int disconnect(uint32_t id) const {
    return command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
  }
  [[nodiscard]] int attributes(uint32_t id, uint32_t state, ib_uverbs_qp_attr& answer) const {
    rdma_ucm_init_qp_attr fields{};
    fields.id = id;
    fields.qp_state = state;
    fields.response = reinterpret_cast<uint64_t>(&answer);
    return command(RDMA_USER_CM_CMD_INIT_QP_ATTR, fields, sizeof answer);
  }
  [[nodiscard]] int take(rdma_ucm_event_resp& event) const {
    return command(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{reinterpret_cast<uint64_t>(&event)},
                   sizeof event);
  }
  /// The next event, which must be that one.
  rdma_ucm_event_resp expect(CmEvent kind) const {
    constexpr int kPatienceMs = 60'000;
    rdma_ucm_event_resp event{};
    event.event = ~0U;
    EXPECT_TRUE(readable(kPatienceMs));
    if (readable(0)) {
      EXPECT_EQ(take(event), 0);
    }
    EXPECT_EQ(event.event, static_cast<uint32_t>(kind));
    return event;
  }

  static void set(sockaddr_in6& room, const char* address, uint16_t port) {
    auto& plain = reinterpret_cast<sockaddr_in&>(room);
    plain.sin_family = AF_INET;
    plain.sin_port = htons(port);
    plain.sin_addr.s_addr = inet_addr(address);
  }

 private:
  int number_;
};

rdma_ucm_conn_param parameters(uint32_t qpn, const char* text) {
  rdma_ucm_conn_param param{};
  param.qp_num = qpn;
  param.valid = 1;
  param.responder_resources = 4;
  param.initiator_depth = 2;
  param.retry_count = 5;
  param.rnr_retry_count = 6;
  param.private_data_len = static_cast<uint8_t>(std::strlen(text));
  std::memcpy(param.private_data, text, param.private_data_len);
  return param;
}

std::string text_of(const rdma_ucm_conn_param& param) {
  return reinterpret_cast<const char*>(param.private_data);
}

class RdmaCm : public testing::Test {
 protected:
  RdmaCm()
      : driver_([this] {
          while (!stop_) {
            for (const char* name : {"mem0", "mem1"})
              if (const auto engine = verbs::running_engine(name)) engine->backend->drive();
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          }
        }) {}
  ~RdmaCm() override {
    stop_ = true;
    driver_.join();
  }

  /// The client's identifier on the way to the server, as far as its route.
  uint32_t resolved(const Channel& client, uint64_t uid, uint16_t port_space = RDMA_PS_TCP,
                    uint16_t port = kPort) {
    const uint32_t id = client.create(uid, port_space);
    EXPECT_EQ(client.resolve(id, kClient, kServer, port), 0);
    const auto event = client.expect(CmEvent::address_resolved);
    EXPECT_EQ(event.uid, uid);
    EXPECT_EQ(event.id, id);
    EXPECT_EQ(client.route(id), 0);
    client.expect(CmEvent::route_resolved);
    return id;
  }
  uint32_t listening(const Channel& server, uint64_t uid, uint16_t port_space = RDMA_PS_TCP) {
    const uint32_t id = server.create(uid, port_space);
    EXPECT_EQ(server.bind(id, kServer, kPort), 0);
    EXPECT_EQ(server.listen(id), 0);
    return id;
  }
  struct Pair {
    uint32_t listener, active, passive;
  };
  Pair connected(const Channel& client, const Channel& server) {
    Pair pair{};
    pair.listener = listening(server, 1);
    pair.active = resolved(client, 2);
    EXPECT_EQ(client.connect(pair.active, parameters(0x111, "hello")), 0);
    pair.passive = server.expect(CmEvent::connect_request).id;
    EXPECT_EQ(server.accept(pair.passive, 3, parameters(0x222, "welcome")), 0);
    client.expect(CmEvent::connect_response);
    EXPECT_EQ(client.accept(pair.active, 0, {}), 0);
    server.expect(CmEvent::established);
    return pair;
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread driver_;
};

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
  // What is left of a REQ's 92 bytes behind the addresses (A11).
  EXPECT_EQ(request.param.conn.private_data_len, 56);
  // From where the server stands.
  EXPECT_EQ(request.param.conn.responder_resources, 2);
  EXPECT_EQ(request.param.conn.initiator_depth, 4);
  EXPECT_EQ(request.param.conn.retry_count, 5);
  EXPECT_EQ(request.param.conn.rnr_retry_count, 6);

  // librdmacm makes its QP ready before it accepts.
  ib_uverbs_qp_attr passive_rtr{}, passive_rts{}, init{};
  EXPECT_EQ(server.attributes(request.id, IBV_QPS_INIT, init), 0);
  EXPECT_EQ(init.qp_access_flags, static_cast<uint32_t>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                        IBV_ACCESS_REMOTE_ATOMIC));
  EXPECT_EQ(server.attributes(request.id, IBV_QPS_RTR, passive_rtr), 0);
  EXPECT_EQ(server.attributes(request.id, IBV_QPS_RTS, passive_rts), 0);
  EXPECT_EQ(passive_rtr.dest_qp_num, 0x111U);
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
  EXPECT_GE(reported, 4U);  // librdmacm waits until as many are acknowledged
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
  for (const char* address : {kServer, kClient}) {  // the second is its own
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
  EXPECT_TRUE(one.readable(60'000));
  rdma_ucm_migrate_resp answer{};
  rdma_ucm_migrate_id fields{reinterpret_cast<uint64_t>(&answer), id, static_cast<uint32_t>(one.number())};
  EXPECT_EQ(two.command(RDMA_USER_CM_CMD_MIGRATE_ID, fields, sizeof answer), 0);
  EXPECT_EQ(answer.events_reported, 0U);
  EXPECT_FALSE(one.readable(0));
  two.expect(CmEvent::address_resolved);
  EXPECT_EQ(one.route(id), EINVAL);  // it is another descriptor's now
  EXPECT_EQ(two.route(id), 0);
  two.expect(CmEvent::route_resolved);
  fields.fd = 100'000;
  EXPECT_EQ(two.command(RDMA_USER_CM_CMD_MIGRATE_ID, fields, sizeof answer), ENOENT);
  fields.fd = 0;  // some file that is none of these
  EXPECT_EQ(two.command(RDMA_USER_CM_CMD_MIGRATE_ID, fields, sizeof answer), EINVAL);
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
  EXPECT_TRUE(server.readable(60'000));
  EXPECT_EQ(server.destroy(listener), 0);
  EXPECT_FALSE(server.readable(0));
  client.expect(CmEvent::rejected);
}

TEST_F(RdmaCm, StaysWhatItIsWhenAChildClosesItsOwn) {
  Channel channel;
  const uint32_t id = channel.create(1);
  // As the C library's close does in Python's subprocess, which runs in its parent's memory.
  const pid_t child = vfork();
  if (child == 0) {
    remove_descriptors(3, ~0U);
    _exit(0);
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(channel.bind(id, kClient, 0), 0);

  // A child of fork has the number, but none of what is behind it.
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

TEST_F(RdmaCm, RefusesWhatTheKernelRefuses) {
  Channel channel, other;
  const uint32_t id = channel.create(1);
  // The envelope.
  const uint64_t nothing = 0;
  EXPECT_EQ(channel.write(&nothing, 7), EINVAL);
  const rdma_ucm_cmd_hdr unknown{99, 0, 0}, option{RDMA_USER_CM_CMD_GET_OPTION, 0, 0}, longer{0, 100, 4};
  EXPECT_EQ(channel.write(&unknown, sizeof unknown), EINVAL);
  EXPECT_EQ(channel.write(&option, sizeof option), ENOSYS);
  EXPECT_EQ(channel.write(&longer, sizeof longer), EINVAL);
  EXPECT_EQ(channel.write(nullptr, 16), EFAULT);
  // Answers that do not fit, or go nowhere.
  rdma_ucm_create_id create{};
  create.ps = RDMA_PS_TCP;
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_CREATE_ID, create, 2), ENOSPC);
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_CREATE_ID, create, sizeof(rdma_ucm_create_id_resp)), EFAULT);
  create.ps = 1;
  EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_CREATE_ID, create, sizeof(rdma_ucm_create_id_resp)), EINVAL);
  // Numbers.
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
  // The wrong order.
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
  // The port is taken.
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

TEST_F(RdmaCm, LetsDevicesGoWithTheLastDescriptor) {
  {
    Channel server, client;
    connected(client, server);
    EXPECT_EQ(verbs::test::running_devices(), 2);
  }
  EXPECT_EQ(verbs::test::running_devices(), 0);
}

}  // namespace
}  // namespace faultline::abi
