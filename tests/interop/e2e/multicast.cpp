// SPDX-License-Identifier: BSD-3-Clause
// Multicast between two devices on a net_ring wire, one of them on two lcores: a datagram to a group reaches
// each QP that is attached to it once, on the sender's own device and on the other, on whichever core it
// lives; those that are not, or no more, get nothing. Over IPv4 and IPv6 groups. With `udp` the devices are
// of that kind, on addresses of one interface in a network namespace; then the kernel is a member of a group
// while a QP is attached. The other end of that interface is in the namespace too: what a device sends to a
// group arrives there as well, where none has joined but another program has.
//   multicast [udp]
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include "tests/interop/e2e/side.hpp"
#include "tests/interop/own_network.hpp"

namespace {

using faultline::e2e::fail;
using faultline::e2e::Side;

constexpr uint32_t kQkey = 0x11223344;
constexpr uint32_t kBytes = 512;
constexpr uint32_t kDatagrams = 100;
constexpr size_t kQps = 4;
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE;
constexpr const char* kInterface = "fl-a";
constexpr const char* kIpv6Group = "ff1e::1:2";

void expect(bool truth, const char* what) {
  if (!truth) fail("expected", what);
}

/// QPs of one device: all but the last are attached.
struct Members {
  Members(Side& one, int gid_index)
      : side(one), index(gid_index), memory((kGrh + kBytes) * kQps * kDatagrams) {
    mr = ibv_reg_mr(side.pd, memory.data(), memory.size(), kRights);
    expect(mr != nullptr, "ibv_reg_mr");
    for (size_t i = 0; i < kQps; ++i) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = side.cq;
      init.qp_type = IBV_QPT_UD;
      init.cap = {kDatagrams, kDatagrams, 1, 1, 0};
      ibv_qp* qp = ibv_create_qp(side.pd, &init);
      expect(qp != nullptr, "ibv_create_qp");
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_INIT;
      attr.port_num = 1;
      attr.qkey = kQkey;
      expect(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0,
             "INIT");
      attr.qp_state = IBV_QPS_RTR;
      expect(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "RTR");
      attr.qp_state = IBV_QPS_RTS;
      expect(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "RTS");
      qps.push_back(qp);
    }
  }
  void post_receives(uint32_t count) {
    for (size_t i = 0; i < kQps; ++i)
      for (uint32_t n = 0; n < count; ++n) {
        ibv_sge piece{reinterpret_cast<uint64_t>(memory.data()) + (i * kDatagrams + n) * (kGrh + kBytes),
                      kGrh + kBytes, mr->lkey};
        ibv_recv_wr receive{.wr_id = i * kDatagrams + n, .next = nullptr, .sg_list = &piece, .num_sge = 1};
        ibv_recv_wr* bad = nullptr;
        expect(ibv_post_recv(qps[i], &receive, &bad) == 0, "ibv_post_recv");
      }
  }
  /// Takes what has come; counts a QP's datagrams, each of which must be the next one.
  void poll(std::array<uint32_t, kQps>& received) {
    std::array<ibv_wc, 32> completions;
    const int count = ibv_poll_cq(side.cq, completions.size(), completions.data());
    for (int i = 0; i < count; ++i) {
      const ibv_wc& wc = completions[static_cast<size_t>(i)];
      expect(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
      if ((wc.opcode & IBV_WC_RECV) == 0) continue;
      const size_t qp = wc.wr_id / kDatagrams;
      const uint8_t* data = &memory[wc.wr_id * (kGrh + kBytes) + kGrh];
      expect(wc.byte_len == kGrh + kBytes, "its length");
      expect(data[0] == static_cast<uint8_t>(received[qp]) && data[kBytes - 1] == 0x5a, "the next datagram");
      ++received[qp];
    }
    faultline_progress(side.context);
  }
  void destroy() {
    for (ibv_qp* qp : qps) expect(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
    expect(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
  }

  static constexpr uint32_t kGrh = 40;
  Side& side;
  int index;
  std::vector<uint8_t> memory;
  ibv_mr* mr = nullptr;
  std::vector<ibv_qp*> qps;
};

/// Sends one after the other, each once the one before has been everywhere: nothing may be lost for want of
/// room.
void send_to_group(Members& from, Members& other, const ibv_gid& group, const std::array<bool, 2>& attached) {
  std::vector<uint8_t> data(kBytes, 0x5a);
  ibv_mr* mr = ibv_reg_mr(from.side.pd, data.data(), data.size(), 0);
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid = group;
  attributes.grh.sgid_index = static_cast<uint8_t>(from.index);
  ibv_ah* ah = ibv_create_ah(from.side.pd, &attributes);
  expect(mr != nullptr && ah != nullptr, "ibv_create_ah");
  from.post_receives(kDatagrams);
  other.post_receives(kDatagrams);
  std::array<std::array<uint32_t, kQps>, 2> received{};
  const std::array<Members*, 2> ends{&from, &other};
  const auto all_have = [&](uint32_t count) {
    for (size_t end = 0; end < 2; ++end)
      for (size_t qp = 0; qp + 1 < kQps; ++qp)
        if (attached[end] && received[end][qp] != count) return false;
    return true;
  };
  for (uint32_t n = 0; n < kDatagrams; ++n) {
    data[0] = static_cast<uint8_t>(n);
    ibv_sge piece{reinterpret_cast<uint64_t>(data.data()), kBytes, mr->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.ud = {ah, 0xffffff, kQkey};
    ibv_send_wr* bad = nullptr;
    // Each QP in its turn is the sender, the one that is not attached too.
    expect(ibv_post_send(from.qps[n % kQps], &request, &bad) == 0, "ibv_post_send");
    faultline::e2e::await_true("main", "not each member has a copy", [&] {
      for (size_t i = 0; i < 2; ++i) ends[i]->poll(received[i]);
      return all_have(n + 1);
    });
  }
  for (size_t end = 0; end < 2; ++end) {
    expect(received[end][kQps - 1] == 0, "nothing for the QP that is not attached");
    for (size_t qp = 0; !attached[end] && qp < kQps; ++qp)
      expect(received[end][qp] == 0, "nothing after detaching");
  }
  expect(ibv_destroy_ah(ah) == 0 && ibv_dereg_mr(mr) == 0, "ibv_destroy_ah");
}

/// Returns whether the kernel is a member of the group on the devices' interface.
bool kernel_is_member(const ibv_gid& group, bool ipv6) {
  std::string name = ipv6 ? kInterface : "";
  std::array<char, 3> digits{};
  // igmp has addresses as numbers of the host's byte order.
  for (size_t i = ipv6 ? 0 : 12; i < sizeof group.raw; ++i) {
    std::snprintf(digits.data(), digits.size(), ipv6 ? "%02x" : "%02X", group.raw[ipv6 ? i : 27 - i]);
    name += digits.data();
  }
  std::ifstream file(ipv6 ? "/proc/self/net/igmp6" : "/proc/self/net/igmp");
  for (std::string line; std::getline(file, line);) {
    std::erase(line, ' ');
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

void talk(Side& a, Side& b, const char* group_text, int gid_index, bool by_kernel) {
  ibv_gid group{};
  if (inet_pton(AF_INET6, group_text, group.raw) != 1) fail("talk", group_text);
  for (const bool both : {true, false}) {
    Members one(a, gid_index);
    Members other(b, gid_index);
    for (size_t i = 0; i + 1 < kQps; ++i) {
      expect(ibv_attach_mcast(one.qps[i], &group, 0) == 0, "ibv_attach_mcast");
      expect(ibv_attach_mcast(other.qps[i], &group, 0) == 0, "ibv_attach_mcast");
      if (!both) expect(ibv_detach_mcast(other.qps[i], &group, 0) == 0, "ibv_detach_mcast");
    }
    if (by_kernel) expect(kernel_is_member(group, gid_index == 1), "membership of the kernel");
    send_to_group(one, other, group, {true, both});
    for (size_t i = 0; i + 1 < kQps; ++i) {
      expect(ibv_detach_mcast(one.qps[i], &group, 0) == 0, "ibv_detach_mcast");
      if (both) expect(ibv_detach_mcast(other.qps[i], &group, 0) == 0, "ibv_detach_mcast");
    }
    if (by_kernel) expect(!kernel_is_member(group, gid_index == 1), "no membership after the last detaching");
    one.destroy();
    other.destroy();
  }
}

/// The kernel finishes the addresses of an interface some time after it is up.
void await_address(const char* address) {
  sockaddr_in6 own{};
  own.sin6_family = AF_INET6;
  inet_pton(AF_INET6, address, &own.sin6_addr);
  const int tried = socket(AF_INET6, SOCK_DGRAM, 0);
  faultline::e2e::await_true("main", address, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return bind(tried, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0;
  });
  close(tried);
}

/// Returns false if this host allows no namespaces.
bool make_host_addresses() {
  using faultline::test::ip;
  if (!faultline::test::enter_own_network()) return false;
  ip("link add fl-a type veth peer name fl-b");
  for (const char* host : {"1", "2"}) {
    ip(std::string("addr add dev fl-a 198.18.0.") + host + "/24");
    ip(std::string("addr add dev fl-a 2001:2::") + host + "/64 nodad");
  }
  ip("link set fl-a up");
  ip("link set fl-b up");
  for (const char* address : {"2001:2::1", "2001:2::2"}) await_address(address);
  // Another program is a member at the other end, so that the kernel takes the packets that arrive there.
  ipv6_mreq request{.ipv6mr_multiaddr = {}, .ipv6mr_interface = if_nametoindex("fl-b")};
  inet_pton(AF_INET6, kIpv6Group, &request.ipv6mr_multiaddr);
  const int member = socket(AF_INET6, SOCK_DGRAM, 0);
  return setsockopt(member, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool udp = argc > 1 && std::string_view(argv[1]) == "udp";
  if (udp && !make_host_addresses()) {
    std::printf("SKIPPED: no network namespace for an ordinary user, or no ip\n");
    return 77;
  }
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  sched_getaffinity(0, sizeof affinity, &affinity);
  const bool two_cpus = CPU_ISSET(0, &affinity) && CPU_ISSET(1, &affinity);
  std::string folder = (std::filesystem::temp_directory_path() / "faultline-multicast-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) fail("main", "mkdtemp");
  const std::string config = folder + "/devices.toml";
  {
    std::ofstream file(config);
    for (const int side : {0, 1}) {
      file << "[[device]]\nname = \"faultline" << side << "\"\nip = [\"198.18.0." << side + 1
           << (udp ? "" : "/24") << "\", \"2001:2::" << side + 1 << (udp ? "" : "/64") << "\"]\n";
      if (side == 0 && two_cpus) file << "progress = \"dedicated\"\nlcores = [0, 1]\n";
      if (udp)
        file << "[device.port]\nkind = \"udp\"\n";
      else
        file << "[device.port]\nkind = \"ring\"\nwire = \"w0\"\nside = \"" << (side == 0 ? 'a' : 'b')
             << "\"\n";
    }
  }
  {
    Side a("a", config, 0);
    Side b("b", "", 1);
    talk(a, b, "::ffff:224.1.2.3", 0, udp);
    talk(b, a, "::ffff:224.1.2.3", 0, udp);
    talk(a, b, kIpv6Group, 1, udp);
    talk(b, a, kIpv6Group, 1, udp);
    std::printf("looped back %lu and %lu, handed over %lu\n", a.counter("port.loopback_frames"),
                b.counter("port.loopback_frames"), a.counter("port.handed_over"));
  }
  if (!two_cpus) std::printf("one CPU: nothing was run on two lcores\n");
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::printf("ok\n");
  return 0;
}
