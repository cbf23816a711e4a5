// SPDX-License-Identifier: BSD-3-Clause
// Processes of one family, each with a device of its own on one wire. A parent whose traffic to another
// process never stops forks children; each opens the device anew, connects to its parent and to that other
// process, and so does a grandchild. A child exits, or ends without a word, or is killed: the others' traffic
// goes on.
//   fork_wire WIRE_REQUEST         ($FAULTLINE_WIRE's form, with ",share" or with addresses given out)
//   fork_wire --refused LINE       the device of $FAULTLINE_WIRE or $FAULTLINE_CONFIG cannot be had twice:
//                                  the child's reason has LINE in it
#include <atomic>
#include <csignal>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hang_limit.hpp"
#include "tests/interop/e2e/peer.hpp"

namespace {

using faultline::e2e::Address;
using faultline::e2e::Exchange;
using faultline::e2e::fail;
using faultline::e2e::Side;

constexpr size_t kBytes = 64 << 10;
constexpr int kRoundTrips = 20;
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/// The family's names are abstract sockets' (unix(7)), of this run.
std::string g_run;

sockaddr_un name_of(const std::string& who, socklen_t& length) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = '\0' + g_run + "." + who;
  text.copy(name.sun_path, sizeof name.sun_path);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return name;
}

int listen_as(const std::string& who) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  const sockaddr_un name = name_of(who, length);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&name), length) != 0 || listen(listener, 16) != 0)
    fail(who.c_str(), "listen");
  return listener;
}

/// A connection and the memory at both ends of it.
class Link {
 public:
  Link(const char* who, const Exchange& exchange) : side_(who, ""), mine_(kBytes), theirs_(kBytes) {
    side_.make_qp(16);
    mr_ = ibv_reg_mr(side_.pd, mine_.data(), kBytes, kRights);
    back_ = ibv_reg_mr(side_.pd, theirs_.data(), kBytes, kRights);
    if (mr_ == nullptr || back_ == nullptr) fail(who, "ibv_reg_mr");
    exchange.send(Address{.qpn = side_.qp->qp_num,
                          .rkey = mr_->rkey,
                          .va = reinterpret_cast<uint64_t>(mine_.data()),
                          .gid = side_.gid});
    if (!exchange.receive(to_)) fail(who, "the other process has gone");
    side_.connect(to_);
    // Until both can receive.
    char ready = 0;
    exchange.send(ready);
    if (!exchange.receive(ready)) fail(who, "the other process has gone");
  }
  ~Link() {
    side_.destroy_qp();
    ibv_dereg_mr(mr_);
    ibv_dereg_mr(back_);
    ibv_destroy_cq(side_.cq);
    ibv_dealloc_pd(side_.pd);
    ibv_close_device(side_.context);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// There and back again.
  void round_trip(const char* who, uint8_t fill) {
    std::memset(mine_.data(), fill, kBytes);
    std::memset(theirs_.data(), 0, kBytes);
    run(who, IBV_WR_RDMA_WRITE, mine_, mr_->lkey);
    run(who, IBV_WR_RDMA_READ, theirs_, back_->lkey);
    if (mine_ != theirs_) fail(who, "wrong bytes");
  }

 private:
  void run(const char* who, ibv_wr_opcode opcode, std::vector<uint8_t>& bytes, uint32_t lkey) {
    ibv_sge piece{reinterpret_cast<uint64_t>(bytes.data()), kBytes, lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = to_.va;
    request.wr.rdma.rkey = to_.rkey;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(side_.qp, &request, &bad) != 0) fail(who, "ibv_post_send");
    ibv_wc completion{};
    faultline::e2e::await_true(who, "no completion",
                               [&] { return ibv_poll_cq(side_.cq, 1, &completion) != 0; });
    if (completion.status != IBV_WC_SUCCESS) fail(who, ibv_wc_status_str(completion.status));
  }

  Side side_;
  std::vector<uint8_t> mine_, theirs_;
  ibv_mr* mr_ = nullptr;
  ibv_mr* back_ = nullptr;
  Address to_;
};

/// Whoever connects reads and writes memory of this process, until it goes.
void serve(const char* who, int listener) {
  for (;;) {
    const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return;
    std::thread([who, socket] {
      {
        const Link link(who, Exchange(socket));
        char byte = 0;
        while (recv(socket, &byte, 1, 0) > 0) {
        }
      }
      close(socket);
    }).detach();
  }
}

class Caller {
 public:
  Caller(const char* who, const std::string& whom)
      : who_(who), socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    socklen_t length = 0;
    const sockaddr_un name = name_of(whom, length);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&name), length) != 0) fail(who, "connect");
    link_ = std::make_unique<Link>(who, Exchange(socket_));
  }
  ~Caller() {
    link_.reset();
    close(socket_);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  void round_trips(uint8_t fill) {
    for (int i = 0; i < kRoundTrips; ++i) link_->round_trip(who_, static_cast<uint8_t>(fill + i));
  }

 private:
  const char* who_;
  int socket_;
  std::unique_ptr<Link> link_;
};

enum class Ending : int { exit, _exit, kill };

void wait_for(pid_t child, bool killed, const char* who) {
  int status = 0;
  const auto hang = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  while (std::chrono::steady_clock::now() < hang) {
    if (waitpid(child, &status, WNOHANG) == child) {
      const bool right = killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                : WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (!right) fail(who, "it failed");
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  fail(who, "it hangs");
}

[[noreturn]] void end(Ending how) {
  if (how == Ending::exit) std::exit(0);
  if (how == Ending::_exit) _exit(0);
  raise(SIGKILL);
  std::abort();
}

[[noreturn]] void be_the_child(Ending how, bool with_grandchild, const Side& parents) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // What was its parent's gives an errno, and its end is no harm.
  errno = 0;
  if (ibv_alloc_pd(parents.context) != nullptr || errno != EIO) fail("child", "a PD of its parent's context");
  if (ibv_destroy_cq(parents.cq) != 0) fail("child", "its parent's CQ");
  // Not destroyed: what ends without a word leaves it all behind.
  auto& to_parent = *new Caller("child", "parent");
  auto& to_other = *new Caller("child", "other");
  to_parent.round_trips(1);
  to_other.round_trips(2);
  if (with_grandchild) {
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      Caller a("grandchild", "parent");
      Caller b("grandchild", "other");
      a.round_trips(3);
      b.round_trips(4);
      end(how);
    }
    to_parent.round_trips(5);
    wait_for(grandchild, how == Ending::kill, "grandchild");
    to_other.round_trips(6);
  }
  end(how);
}

int run_refused(const char* line) {
  const Side parents("parent", "");
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    // The wire's switch may have refused already.
    ibv_context* const context = list != nullptr && count != 0 ? ibv_open_device(list[0]) : nullptr;
    if (context != nullptr && ibv_alloc_pd(context) != nullptr) fail("child", "it has the device");
    if (std::strstr(faultline_last_error(), line) == nullptr) fail("child", faultline_last_error());
    std::exit(0);
  }
  wait_for(child, false, "child");
  std::printf("ok: refused, %s\n", line);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--refused") return run_refused(argv[2]);
  if (argc != 2) return 2;
  setenv("FAULTLINE_WIRE", argv[1], 1);
  g_run = "faultline-fork-" + std::to_string(getpid());

  const int others_listener = listen_as("other");
  const pid_t other = fork();
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve("other", others_listener);
    return 0;
  }
  close(others_listener);
  std::thread(serve, "parent", listen_as("parent")).detach();

  const Side parents("parent", "");
  std::atomic<bool> over{false};
  std::atomic<uint32_t> trips{0};
  std::thread traffic([&] {
    Caller call("parent", "other");
    while (!over.load()) {
      call.round_trips(7);
      ++trips;
    }
  });
  int forks = 0;
  for (const Ending how : {Ending::exit, Ending::_exit, Ending::kill})
    for (const bool with_grandchild : {false, true}) {
      const uint32_t before = trips.load();
      const pid_t child = fork();
      if (child < 0) fail("parent", "fork");
      if (child == 0) be_the_child(how, with_grandchild, parents);
      ++forks;
      wait_for(child, how == Ending::kill, "child");
      faultline::e2e::await_true("parent", "its traffic stands", [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return trips.load() >= before + 2;
      });
    }
  over = true;
  traffic.join();
  kill(other, SIGTERM);
  waitpid(other, nullptr, 0);
  std::printf("ok: %d forks, %u times %d round trips beside them\n", forks, trips.load(), kRoundTrips);
  return 0;
}
