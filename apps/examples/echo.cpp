// SPDX-License-Identifier: BSD-3-Clause
// A client sends a line, and the server sends it back (C++, librdmacm). The connection manager finds the peer
// by its address and connects the QPs: no TCP, and no parameters to exchange.
//   echo            the server: answers the first client
//   echo ADDRESS    the client
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

namespace {

constexpr const char* kService = "7471";
constexpr size_t kMessageBytes = 256;
constexpr std::string_view kLine = "hello over RDMA";

/// Throws errno of a failed call.
void check(bool is_good, const char* what) {
  if (!is_good) throw std::system_error(errno, std::generic_category(), what);
}

// An endpoint has a connection identifier, a PD, CQs and a QP: rdma_destroy_ep(3) ends all of them.
using Endpoint = std::unique_ptr<rdma_cm_id, decltype(&rdma_destroy_ep)>;

Endpoint make_endpoint(const char* address) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  if (address == nullptr) hints.ai_flags = RAI_PASSIVE;
  rdma_addrinfo* found = nullptr;
  check(rdma_getaddrinfo(address, kService, &hints, &found) == 0, "rdma_getaddrinfo");
  const std::unique_ptr<rdma_addrinfo, decltype(&rdma_freeaddrinfo)> owner(found, &rdma_freeaddrinfo);
  ibv_qp_init_attr attr{};
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  check(rdma_create_ep(&id, found, nullptr, &attr) == 0, "rdma_create_ep");
  return {id, &rdma_destroy_ep};
}

/// A registered message of a connection.
class Message {
 public:
  explicit Message(rdma_cm_id* id)
      : id_(id), bytes_(kMessageBytes), mr_(rdma_reg_msgs(id, bytes_.data(), bytes_.size())) {
    check(mr_ != nullptr, "rdma_reg_msgs");
  }
  ~Message() { rdma_dereg_mr(mr_); }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  void post_receive() {
    check(rdma_post_recv(id_, nullptr, bytes_.data(), bytes_.size(), mr_) == 0, "rdma_post_recv");
  }
  /// Waits for the receive that was posted. Returns its bytes.
  std::string_view wait() {
    ibv_wc completion{};
    check(rdma_get_recv_comp(id_, &completion) == 1, "rdma_get_recv_comp");
    check_status(completion);
    return {bytes_.data(), completion.byte_len};
  }
  void send(std::string_view text) {
    std::memcpy(bytes_.data(), text.data(), text.size());
    check(rdma_post_send(id_, nullptr, bytes_.data(), text.size(), mr_, 0) == 0, "rdma_post_send");
    ibv_wc completion{};
    check(rdma_get_send_comp(id_, &completion) == 1, "rdma_get_send_comp");
    check_status(completion);
  }

 private:
  static void check_status(const ibv_wc& completion) {
    if (completion.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(completion.status));
  }

  rdma_cm_id* id_;
  std::vector<char> bytes_;
  ibv_mr* mr_;
};

int serve() {
  const Endpoint listener = make_endpoint(nullptr);
  check(rdma_listen(listener.get(), 1) == 0, "rdma_listen");
  rdma_cm_id* request = nullptr;
  check(rdma_get_request(listener.get(), &request) == 0, "rdma_get_request");
  const Endpoint connection(request, &rdma_destroy_ep);
  Message in(request);
  Message out(request);
  in.post_receive();  // before the client is accepted: it sends at once
  check(rdma_accept(request, nullptr) == 0, "rdma_accept");
  out.send(in.wait());
  // The client disconnects once it has the answer.
  rdma_disconnect(request);
  std::puts("answered one client");
  return 0;
}

int ask(const char* address) {
  const Endpoint connection = make_endpoint(address);
  Message in(connection.get());
  Message out(connection.get());
  in.post_receive();
  check(rdma_connect(connection.get(), nullptr) == 0, "rdma_connect");
  out.send(kLine);
  const std::string_view answer = in.wait();
  std::printf("the server sent: %.*s\n", static_cast<int>(answer.size()), answer.data());
  rdma_disconnect(connection.get());
  return answer == kLine ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc > 1 ? ask(argv[1]) : serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "echo: %s\n", error.what());
    return 1;
  }
}
