// SPDX-License-Identifier: BSD-3-Clause
// The rdma_cm device as a program sees it, on two devices joined in memory.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include "stack/abi/rdma_cm/channel.hpp"
#include "tests/unit/verbs/memory_backend.hpp"

namespace faultline::abi::test {

inline constexpr const char* kServer = "198.18.0.2";
inline constexpr const char* kClient = "198.18.0.1";
inline constexpr uint16_t kPort = 7471;

/// The device's file descriptor as a program sees it.
class Channel {
 public:
  explicit Channel(int flags = 0)
      : number_(CmChannel::open(
            {"/dev/infiniband/rdma_cm", Node{NodeKind::connection_manager, {}, 10, 58, {}}, {}},
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

  /// Returns 0 or the errno.
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
  /// Returns the next event, which must be of that kind.
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

inline rdma_ucm_conn_param parameters(uint32_t qpn, const char* text) {
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

inline std::string text_of(const rdma_ucm_conn_param& param) {
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

  /// Creates a client identifier and resolves the server's address and route.
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

}  // namespace faultline::abi::test
