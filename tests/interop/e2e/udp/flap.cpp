// SPDX-License-Identifier: BSD-3-Clause
// A device of kind udp whose interface goes down and up and whose address is removed and added, while a QP
// writes and reads back: each change leads to its asynchronous event, the last of several changes to the last
// event, the QP survives, and every byte is right. Two processes in two network namespaces that a veth pair
// joins, as an ordinary user. Four times; with FAULTLINE_SOAK sixty times.
//   udp_flap
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>

#include "tests/interop/e2e/peer.hpp"
#include "tests/interop/own_network.hpp"

namespace {

using namespace std::chrono_literals;
using faultline::e2e::Address;
using faultline::e2e::await_true;
using faultline::e2e::Exchange;
using faultline::e2e::fail;
using faultline::e2e::Peer;
using faultline::e2e::Side;
using faultline::test::ip;

constexpr uint32_t kBytes = 16384;
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
// 1.1 s: a QP survives a change that a busy machine takes 8 s for.
constexpr uint8_t kTimeout = 18;
constexpr const char* kOwn = "198.18.0.1/24 dev fl-a";

void expect(bool truth, const char* what) {
  if (!truth) fail("expected", what);
}

std::string write_config(int host) {
  std::string folder = (std::filesystem::temp_directory_path() / "faultline-flap-XXXXXX").string();
  expect(mkdtemp(folder.data()) != nullptr, "mkdtemp");
  std::ofstream(folder + "/device.toml") << "[[device]]\nname = \"faultline0\"\nip = \"198.18.0." << host
                                         << "\"\n[device.port]\nkind = \"udp\"\n";
  return folder;
}

/// A device with memory: the first half is the peer's to write and read.
struct End {
  explicit End(const char* who, int host) : folder(write_config(host)), side(who, folder + "/device.toml") {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    mr = ibv_reg_mr(side.pd, memory.data(), memory.size(), kRights);
    expect(mr != nullptr, "ibv_reg_mr");
    side.make_qp(8);
  }
  [[nodiscard]] Address address() const {
    return {side.qp->qp_num, mr->rkey, reinterpret_cast<uint64_t>(memory.data()), side.gid, false};
  }

  const std::string folder;
  Side side;
  std::vector<uint8_t> memory = std::vector<uint8_t>(2 * kBytes);
  ibv_mr* mr = nullptr;
};

int serve(const Exchange& exchange) {
  await_true("peer", "the interface", [] {
    std::this_thread::sleep_for(10ms);
    return std::system("ip link show fl-b >/dev/null 2>&1") == 0;
  });
  ip("link set lo up");
  ip("addr add 198.18.0.2/24 dev fl-b");
  ip("link set fl-b up");
  End end("peer", 2);
  exchange.send(end.address());
  Address other;
  expect(exchange.receive(other), "the other's address");
  end.side.connect(other, kTimeout);
  exchange.send('c');
  char last = 0;
  return exchange.receive(last) ? 0 : 1;
}

void post(End& end, const Address& to, ibv_wr_opcode opcode, uint32_t offset) {
  ibv_sge piece{reinterpret_cast<uint64_t>(end.memory.data()) + offset, kBytes, end.mr->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {to.va, to.rkey};
  ibv_send_wr* bad = nullptr;
  expect(ibv_post_send(end.side.qp, &request, &bad) == 0, "ibv_post_send");
}

/// Writes a pattern and reads it back.
void run_round(End& end, const Address& to, uint64_t number) {
  for (size_t i = 0; i < kBytes; ++i)
    end.memory[i] = static_cast<uint8_t>((number * 0x9e3779b97f4a7c15U + i * 0x2545f491U) >> 16);
  post(end, to, IBV_WR_RDMA_WRITE, 0);
  post(end, to, IBV_WR_RDMA_READ, kBytes);
  int completed = 0;
  await_true("main", "a completion", [&] {
    ibv_wc completion;
    if (ibv_poll_cq(end.side.cq, 1, &completion) != 1) return false;
    expect(completion.status == IBV_WC_SUCCESS, ibv_wc_status_str(completion.status));
    return ++completed == 2;
  });
  expect(std::equal(end.memory.begin(), end.memory.begin() + kBytes, end.memory.begin() + kBytes),
         "every byte");
}

/// Changes the interface and the address, and counts the events.
class Flapper {
 public:
  explicit Flapper(ibv_context* context) : context_(context) {
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  }

  void run_cycle() {
    change("link set fl-a down", IBV_EVENT_PORT_ERR);
    change("link set fl-a up", IBV_EVENT_PORT_ACTIVE);
    change(std::string("addr del ") + kOwn, IBV_EVENT_PORT_ERR);
    change(std::string("addr add ") + kOwn, IBV_EVENT_PORT_ACTIVE);
    // Changes in a row lead to any number of events, the last of which is the port's state.
    ip("link set fl-a down");
    ip("link set fl-a up");
    ip(std::string("addr del ") + kOwn);
    ip(std::string("addr add ") + kOwn);
    await_true("main", "an active port", [this] {
      // What is under way has arrived once no event has come for a while.
      bool any = false;
      for (int turn = 0; turn < 30; ++turn) any = take_event() || any;
      return !any && is_active_;
    });
  }

  [[nodiscard]] uint64_t errors() const { return errors_; }
  [[nodiscard]] uint64_t actives() const { return actives_; }
  [[nodiscard]] uint64_t changes() const { return changes_; }

 private:
  void change(const std::string& words, ibv_event_type wanted) {
    ip(words);
    const bool active = wanted == IBV_EVENT_PORT_ACTIVE;
    await_true("main", ibv_event_type_str(wanted), [&] { return take_event() && is_active_ == active; });
    await_true("main", "the port's state", [&] {
      std::this_thread::sleep_for(1ms);
      ibv_port_attr port{};
      return ibv_query_port(context_, 1, &port) == 0 && port.state != IBV_PORT_NOP &&
             (port.state == IBV_PORT_ACTIVE) == active;
    });
    // The moments of the changes within the traffic differ.
    std::this_thread::sleep_for(std::chrono::milliseconds(changes_ * 37 % 150));
  }
  /// Returns whether an event has come.
  bool take_event() {
    pollfd wait{context_->async_fd, POLLIN, 0};
    ibv_async_event event;
    if (poll(&wait, 1, 10) != 1 || ibv_get_async_event(context_, &event) != 0) return false;
    const ibv_event_type type = event.event_type;
    ibv_ack_async_event(&event);
    // Of several that wait, equal ones are one event, in the place of the last.
    if (type != IBV_EVENT_PORT_ERR && type != IBV_EVENT_PORT_ACTIVE) fail("event", ibv_event_type_str(type));
    is_active_ = type == IBV_EVENT_PORT_ACTIVE;
    ++(is_active_ ? actives_ : errors_);
    ++changes_;
    return true;
  }

  ibv_context* const context_;
  bool is_active_ = true;
  uint64_t errors_ = 0;
  uint64_t actives_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return serve(Exchange(std::stoi(argv[argc - 1])));
  if (!faultline::test::enter_own_network()) {
    std::printf("SKIPPED: no network namespace for an ordinary user, or no ip\n");
    return 77;
  }
  ip("link add fl-a type veth peer name fl-b");
  ip(std::string("addr add ") + kOwn);
  ip("link set fl-a up");
  int ready[2];
  expect(pipe(ready) == 0, "pipe");
  Peer peer({"serve"}, [&] {
    if (unshare(CLONE_NEWNET) != 0) _exit(1);
    const pid_t self = getpid();
    if (write(ready[1], &self, sizeof self) != sizeof self) _exit(1);
  });
  pid_t pid = 0;
  expect(read(ready[0], &pid, sizeof pid) == sizeof pid, "the peer's process");
  ip("link set fl-b netns " + std::to_string(pid));
  const auto there = peer.await<Address>();
  End end("main", 1);
  peer.exchange().send(end.address());
  end.side.connect(there, kTimeout);
  static_cast<void>(peer.await<char>());
  faultline::e2e::wait_for_link(end.side, "main");

  std::atomic<bool> over{false};
  const uint64_t cycles_wanted = std::getenv("FAULTLINE_SOAK") != nullptr ? 60 : 4;
  Flapper flapper(end.side.context);
  uint64_t cycles = 0;
  std::thread flapping([&] {
    for (; cycles < cycles_wanted; ++cycles) flapper.run_cycle();
    over = true;
  });
  uint64_t rounds = 0;
  for (; !over; ++rounds) run_round(end, there, rounds);
  flapping.join();
  for (int i = 0; i < 10; ++i) run_round(end, there, ++rounds);
  std::printf(
      "%lu cycles of 8 changes: %lu times IBV_EVENT_PORT_ERR, %lu times IBV_EVENT_PORT_ACTIVE; "
      "%lu rounds of %u bytes, %lu packets sent again\n",
      cycles, flapper.errors(), flapper.actives(), rounds, kBytes,
      end.side.counter("transport.retransmitted_packets"));
  peer.exchange().send('e');
  peer.finish();
  return 0;
}
