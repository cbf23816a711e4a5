// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: what a program may post. Chains of work requests with any opcode, flags, counts, lengths
// and keys, through ibv_post_*, ibv_wr_* and the calls that change a QP under them, on two devices with the
// real core and the real memory domain between. Whatever is posted: a request that was taken completes once,
// if it asked to or failed, in order; one that was refused never does; no byte changes where no right is.
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include "stack/include/faultline/faultline.h"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_port.hpp"
#include "tests/unit/verbs/memory_backend.hpp"

namespace faultline::fuzz {
namespace {

constexpr size_t kRegionBytes = 65536;
constexpr int kAllRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr uint32_t kQkey = 0x1234;
constexpr uint32_t kDepth = 16;
/// More elements than any WR may have: counts beyond are refused before the list is read.
constexpr size_t kListElements = 64;

/// Requests that were posted over the whole run, told at the end.
struct Tally {
  ~Tally() { std::fprintf(stderr, "requests %llu\n", static_cast<unsigned long long>(requests)); }
  uint64_t requests = 0;
} tally;

ibv_context* open(const std::string& name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i)
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  require(context != nullptr, "the device opens");
  return context;
}

uint8_t* map() {
  void* const memory =
      mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "there is memory");
  return static_cast<uint8_t*>(memory);
}

/// A device with its regions: they stay for the whole run.
struct Host {
  explicit Host(const std::string& name) : context(open(name)), pd(ibv_alloc_pd(context)) {
    pinned = ibv_reg_mr(pd, map(), kRegionBytes, kAllRights);
    paged = ibv_reg_mr(pd, map(), kRegionBytes, kAllRights | IBV_ACCESS_ON_DEMAND);
    forbidden = ibv_reg_mr(pd, map(), kRegionBytes, 0);
    require(pinned != nullptr && paged != nullptr && forbidden != nullptr, "regions can be registered");
    auto* const bytes = static_cast<uint8_t*>(forbidden->addr);
    for (size_t i = 0; i < kRegionBytes; ++i) bytes[i] = static_cast<uint8_t>(i * 7);
    window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    require(window != nullptr, "a window can be made");
    ibv_query_gid(context, 1, 0, &gid);
  }
  ~Host() {
    ibv_dealloc_mw(window);
    for (ibv_mr* mr : {pinned, paged, forbidden}) {
      void* const memory = mr->addr;
      require(ibv_dereg_mr(mr) == 0, "a region can go");
      munmap(memory, kRegionBytes);
    }
    ibv_dealloc_pd(pd);
    require(ibv_close_device(context) == 0, "a device can be closed");
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  [[nodiscard]] bool untouched() const {
    const auto* const bytes = static_cast<const uint8_t*>(forbidden->addr);
    for (size_t i = 0; i < kRegionBytes; ++i)
      if (bytes[i] != static_cast<uint8_t>(i * 7)) return false;
    return true;
  }

  ibv_context* const context;
  ibv_pd* const pd;
  ibv_mr *pinned = nullptr, *paged = nullptr, *forbidden = nullptr;
  ibv_mw* window = nullptr;
  ibv_gid gid{};
};

struct Hosts {
  Host a{"mem0"}, b{"mem1"};
};
Hosts& hosts() {
  static Hosts both;
  return both;
}

/// A QP and what it owes.
struct Queue {
  Queue(Host& own, ibv_cq* cq, ibv_qp_type qp_type, ibv_srq* shared) : host(own), type(qp_type), srq(shared) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq;
    init.srq = shared;
    init.qp_type = type;
    init.cap = {kDepth, kDepth, 3, 3, 64};
    init.pd = host.pd;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    if (type != IBV_QPT_UD)
      init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    if (type == IBV_QPT_RC)
      init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                             IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
                             IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
    qp = ibv_create_qp_ex(host.context, &init);
    require(qp != nullptr, "a QP can be made");
  }
  ~Queue() { require(ibv_destroy_qp(qp) == 0, "a QP can be destroyed"); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void connect(const Host& peer_host, uint32_t peer_qpn) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    attr.qkey = kQkey;
    const bool ud = type == IBV_QPT_UD, rc = type == IBV_QPT_RC;
    int error = ibv_modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_256;
    attr.dest_qp_num = peer_qpn;
    attr.rq_psn = attr.sq_psn = 0xfffff0;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 2;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer_host.gid;
    attr.ah_attr.grh.hop_limit = 1;
    if (error == 0)
      error =
          ibv_modify_qp(qp, &attr,
                        ud ? IBV_QP_STATE
                           : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                 (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 1;
    attr.retry_cnt = 1;
    attr.rnr_retry = 1;
    if (error == 0)
      error = ibv_modify_qp(
          qp, &attr,
          IBV_QP_STATE | IBV_QP_SQ_PSN |
              (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
    require(error == 0, "a QP can be connected");
  }

  struct Owed {
    uint64_t wr_id;
    bool signaled;
  };
  Host& host;
  const ibv_qp_type type;
  ibv_srq* const srq;
  ibv_qp* qp = nullptr;
  std::deque<Owed> sends;
  std::deque<Owed> receives;
};

constexpr uint64_t kReceive = uint64_t{1} << 63;
constexpr uint64_t kShared = uint64_t{1} << 62;

class Bed {
 public:
  Bed() {
    for (Host* host : {&a_, &b_}) {
      cqs_.push_back(ibv_create_cq(host->context, 4096, nullptr, nullptr, 0));
      require(cqs_.back() != nullptr, "a CQ can be made");
    }
    ibv_srq_init_attr srq_init{};
    srq_init.attr = {8, 2, 3};
    srq_ = ibv_create_srq(b_.pd, &srq_init);
    require(srq_ != nullptr, "an SRQ can be made");
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
      queues_.push_back(std::make_unique<Queue>(a_, cqs_[0], type, nullptr));
      queues_.push_back(std::make_unique<Queue>(b_, cqs_[1], type, queues_.size() == 3 ? srq_ : nullptr));
      Queue& from = *queues_[queues_.size() - 2];
      Queue& to = *queues_.back();
      from.connect(b_, to.qp->qp_num);
      to.connect(a_, from.qp->qp_num);
    }
    ibv_ah_attr address{};
    address.is_global = 1;
    address.port_num = 1;
    address.grh.dgid = b_.gid;
    address.grh.hop_limit = 1;
    ah_ = ibv_create_ah(a_.pd, &address);
    require(ah_ != nullptr, "an address handle can be made");
  }
  ~Bed() {
    queues_.clear();
    ibv_destroy_ah(ah_);
    ibv_destroy_srq(srq_);
    for (ibv_cq* cq : cqs_) require(ibv_destroy_cq(cq) == 0, "a CQ can be destroyed");
  }
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;

  void run(FuzzInput& input) {
    while (!input.empty()) step(input);
    // Everything that is owed comes out by way of the error state.
    for (const auto& queue : queues_) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_ERR;
      // But from RESET, where nothing can be posted.
      require(ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE) == 0 || queue->qp->state == IBV_QPS_RESET,
              "any state but RESET leads to error");
    }
    for (int i = 0; i < 4; ++i) poll();
    for (const auto& queue : queues_) {
      for (const Queue::Owed& owed : queue->sends) require(!owed.signaled, "a send that was taken completes");
      require(queue->receives.empty(), "a receive that was taken completes");
    }
    require(a_.untouched() && b_.untouched(), "nobody writes where no right is");
  }

 private:
  Queue& queue(FuzzInput& input) { return *queues_[input.byte() % queues_.size()]; }

  /// Mostly of a region; else anything.
  ibv_sge element(FuzzInput& input, const Host& host, bool readable) {
    const uint8_t how = input.byte();
    const ibv_mr* const mr = (how & 3) == 0 ? host.paged : (how & 3) == 1 ? host.forbidden : host.pinned;
    ibv_sge sge{};
    sge.addr = reinterpret_cast<uint64_t>(mr->addr) + input.below(kRegionBytes / 2);
    sge.length = input.below((how & 4) != 0 ? 65536 : 700);
    sge.lkey = mr->lkey;
    if (readable) return sge;  // inline data is read by the call itself
    if ((how & 0x18) == 0x18) sge.addr = input.take<uint64_t>();
    if ((how & 0x60) == 0x60) sge.lkey ^= input.take<uint16_t>();
    if ((how & 0x90) == 0x90) sge.length = input.take<uint32_t>();
    return sge;
  }
  uint64_t remote_address(FuzzInput& input, const Host& peer) {
    const uint8_t how = input.byte();
    if ((how & 15) == 15) return input.take<uint64_t>();
    const ibv_mr* const mr = (how & 16) != 0 ? peer.paged : (how & 32) != 0 ? peer.forbidden : peer.pinned;
    return reinterpret_cast<uint64_t>(mr->addr) + (input.below(kRegionBytes / 2) & ~7U);
  }
  uint32_t remote_key(FuzzInput& input, const Host& peer) {
    const uint8_t how = input.byte();
    if ((how & 15) == 15) return input.take<uint32_t>();
    if ((how & 15) == 14) return peer.window->rkey;
    return (how & 16) != 0 ? peer.paged->rkey : (how & 32) != 0 ? peer.forbidden->rkey : peer.pinned->rkey;
  }
  int element_count(FuzzInput& input) {
    const uint8_t how = input.byte();
    return how < 250 ? how % 4 : static_cast<int>(input.take<int32_t>());
  }

  void step(FuzzInput& input) {
    switch (input.byte() % 12) {
      default:
        return post_sends(input);
      case 6:
        return post_receives(input);
      case 7:
        return post_extended(input);
      case 8:
        return change(input);
      case 9:
        return renew(input);
      case 10:
      case 11:
        return poll();
    }
  }

  void post_sends(FuzzInput& input) {
    Queue& from = queue(input);
    Host& peer = &from.host == &a_ ? b_ : a_;
    std::array<ibv_send_wr, 4> chain{};
    std::array<std::array<ibv_sge, kListElements>, 4> lists{};
    const size_t count = input.byte() % chain.size() + 1;
    for (size_t i = 0; i < count; ++i) {
      ibv_send_wr& wr = chain[i];
      const uint8_t opcode = input.byte();
      wr.wr_id = next_id_++;
      ++tally.requests;
      wr.next = i + 1 < count ? &chain[i + 1] : nullptr;
      // As a C program may: by its bytes, since many a number is no value of the type.
      const uint32_t operation = (opcode & 0xf0) == 0xf0 ? opcode : opcode % 14U;
      std::memcpy(&wr.opcode, &operation, sizeof operation);
      const uint8_t flags = input.byte();
      wr.send_flags = flags < 0xf0 ? flags & 15U : input.take<uint32_t>();
      wr.sg_list = lists[i].data();
      wr.num_sge = element_count(input);
      const bool inlined = (wr.send_flags & IBV_SEND_INLINE) != 0;
      for (size_t element_index = 0; element_index < 4; ++element_index)
        lists[i][element_index] = element(input, from.host, inlined);
      // Beyond the four: what a count that is too large would reach, and must not.
      for (size_t rest = 4; rest < kListElements; ++rest)
        lists[i][rest] = {reinterpret_cast<uint64_t>(from.host.pinned->addr), 8, from.host.pinned->lkey};
      wr.imm_data = input.take<uint32_t>();
      if (operation == IBV_WR_BIND_MW) {
        wr.bind_mw.mw = (flags & 0x80) != 0 ? nullptr : from.host.window;
        wr.bind_mw.rkey = ibv_inc_rkey(from.host.window->rkey);
        wr.bind_mw.bind_info = {from.host.pinned, remote_address(input, from.host), input.take<uint16_t>(),
                                input.byte()};
      } else if (from.type == IBV_QPT_UD) {
        wr.wr.ud = {(flags & 0x80) != 0 ? nullptr : ah_, queues_[7]->qp->qp_num, kQkey};
      } else if (operation == IBV_WR_ATOMIC_CMP_AND_SWP || operation == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic = {remote_address(input, peer) + ((flags & 0x40) != 0 ? 1 : 0), input.take<uint64_t>(),
                        input.take<uint64_t>(), remote_key(input, peer)};
      } else {
        wr.wr.rdma = {remote_address(input, peer), remote_key(input, peer)};
        if (operation == IBV_WR_LOCAL_INV || operation == IBV_WR_SEND_WITH_INV)
          wr.invalidate_rkey = remote_key(input, operation == IBV_WR_LOCAL_INV ? from.host : peer);
      }
    }
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(from.qp, chain.data(), &bad);
    require((error == 0) == (bad == nullptr), "an error names its request");
    for (ibv_send_wr* wr = chain.data(); wr != nullptr && wr != bad; wr = wr->next)
      from.sends.push_back({wr->wr_id, (wr->send_flags & IBV_SEND_SIGNALED) != 0});
  }

  void post_receives(FuzzInput& input) {
    Queue& to = queue(input);
    std::array<ibv_recv_wr, 4> chain{};
    std::array<std::array<ibv_sge, kListElements>, 4> lists{};
    const size_t count = input.byte() % chain.size() + 1;
    for (size_t i = 0; i < count; ++i) {
      for (size_t element_index = 0; element_index < 4; ++element_index)
        lists[i][element_index] = element(input, to.host, false);
      ++tally.requests;
      chain[i] = {next_id_++ | kReceive | (to.srq != nullptr ? kShared : 0),
                  i + 1 < count ? &chain[i + 1] : nullptr, lists[i].data(), element_count(input)};
    }
    ibv_recv_wr* bad = nullptr;
    const int error = to.srq != nullptr ? ibv_post_srq_recv(to.srq, chain.data(), &bad)
                                        : ibv_post_recv(to.qp, chain.data(), &bad);
    require((error == 0) == (bad == nullptr), "an error names its receive");
    if (to.srq != nullptr) return;  // a shared queue keeps what it is not asked for
    for (ibv_recv_wr* wr = chain.data(); wr != nullptr && wr != bad; wr = wr->next)
      to.receives.push_back({wr->wr_id, true});
  }

  void post_extended(FuzzInput& input) {
    Queue& from = queue(input);
    Host& peer = &from.host == &a_ ? b_ : a_;
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(from.qp);
    require(qp != nullptr, "it was made for ibv_wr_*");
    ibv_wr_start(qp);
    std::vector<Queue::Owed> begun;
    const int calls = input.byte() % 12;
    for (int i = 0; i < calls; ++i) {
      const uint8_t what = input.byte();
      if ((what & 1) == 0) {
        qp->wr_id = next_id_++;
        ++tally.requests;
        qp->wr_flags = input.byte() & 15U;
        begun.push_back({qp->wr_id, (qp->wr_flags & IBV_SEND_SIGNALED) != 0});
        build(input, qp, what, from, peer);
      } else {
        set(input, qp, what, from);
      }
    }
    if ((input.byte() & 7) == 0) return ibv_wr_abort(qp);
    if (ibv_wr_complete(qp) == 0) from.sends.insert(from.sends.end(), begun.begin(), begun.end());
  }
  /// Those that the QP was made without are no function at all: an RC QP has them all.
  void build(FuzzInput& input, ibv_qp_ex* qp, uint8_t what, const Queue& from, const Host& peer) {
    const uint32_t rkey = remote_key(input, peer);
    const uint64_t address = remote_address(input, peer);
    if (from.type == IBV_QPT_UD || (what & 0xe) == 0) return ibv_wr_send(qp);
    if ((what & 0xe) == 2) return ibv_wr_rdma_write(qp, rkey, address);
    if ((what & 0xe) == 4 || from.type != IBV_QPT_RC) return ibv_wr_rdma_write_imm(qp, rkey, address, what);
    switch (what & 0xe) {
      case 6:
        return ibv_wr_rdma_read(qp, rkey, address);
      case 8:
        return ibv_wr_atomic_cmp_swp(qp, rkey, address, input.take<uint64_t>(), 1);
      case 10:
        return ibv_wr_local_inv(qp, rkey);
      case 12:
        return ibv_wr_send_inv(qp, rkey);
      default: {
        const ibv_mw_bind_info info{from.host.pinned, remote_address(input, from.host),
                                    input.take<uint16_t>(), input.byte()};
        ibv_wr_bind_mw(qp, from.host.window, ibv_inc_rkey(from.host.window->rkey), &info);
      }
    }
  }
  void set(FuzzInput& input, ibv_qp_ex* qp, uint8_t what, const Queue& from) {
    const bool inlined = (what & 0x30) == 0x30;
    std::array<ibv_sge, kListElements> list{};
    for (size_t i = 0; i < 4; ++i) list[i] = element(input, from.host, inlined);
    if (from.type == IBV_QPT_UD && (what & 0x40) == 0)
      ibv_wr_set_ud_addr(qp, ah_, queues_[7]->qp->qp_num, kQkey);
    if (inlined) return ibv_wr_set_inline_data(qp, reinterpret_cast<void*>(list[0].addr), list[0].length);
    if ((what & 0x80) == 0) return ibv_wr_set_sge(qp, list[0].lkey, list[0].addr, list[0].length);
    ibv_wr_set_sge_list(qp, input.byte() % 5, list.data());
  }

  /// The QP, its shared queue or its CQ are changed under what is posted.
  void change(FuzzInput& input) {
    Queue& changed = queue(input);
    const uint8_t what = input.byte();
    ibv_qp_attr attr{};
    switch (what & 7) {
      case 0: {  // any attributes at all
        attr.qp_state = static_cast<ibv_qp_state>(input.byte() % 8);
        attr.path_mtu = static_cast<ibv_mtu>(input.byte() % 8);
        attr.timeout = input.byte();
        attr.retry_cnt = input.byte();
        attr.rnr_retry = input.byte();
        attr.max_rd_atomic = input.byte();
        attr.max_dest_rd_atomic = input.byte();
        attr.min_rnr_timer = input.byte();
        attr.port_num = input.byte();
        attr.qkey = kQkey;
        const int mask = static_cast<int>(input.take<uint32_t>() & 0x1fffff);
        const int error = ibv_modify_qp(changed.qp, &attr, mask);
        require(
            error == 0 || error == EINVAL || error == EBUSY || error == EOPNOTSUPP || error == EHOSTUNREACH,
            "an errno that ibv_modify_qp knows");
        if (error == 0 && (mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RESET) forget(changed);
        return;
      }
      case 1: {  // down, and up again
        poll();
        attr.qp_state = IBV_QPS_RESET;
        require(ibv_modify_qp(changed.qp, &attr, IBV_QP_STATE) == 0, "any state leads to reset");
        forget(changed);
        Queue& peer = peer_of(changed);
        return changed.connect(peer.host, peer.qp->qp_num);
      }
      case 2:
        attr.qp_state = IBV_QPS_SQD;
        static_cast<void>(ibv_modify_qp(changed.qp, &attr, IBV_QP_STATE));
        poll();
        attr.qp_state = IBV_QPS_RTS;
        static_cast<void>(ibv_modify_qp(changed.qp, &attr, IBV_QP_STATE));
        return;
      case 3: {
        ibv_srq_attr srq_attr{input.byte() % 64U, 2, input.byte() % 16U};
        static_cast<void>(ibv_modify_srq(srq_, &srq_attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT));
        return;
      }
      case 4:
        static_cast<void>(ibv_resize_cq(cqs_[what >> 3 & 1], 2048 + input.byte()));
        return;
      case 5: {
        ibv_qp_init_attr init{};
        require(ibv_query_qp(changed.qp, &attr, IBV_QP_STATE, &init) == 0, "a QP can be asked");
        return;
      }
      default:
        madvise(changed.host.paged->addr, kRegionBytes, MADV_DONTNEED);
    }
  }
  Queue& peer_of(const Queue& changed) {
    for (size_t i = 0; i < queues_.size(); ++i)
      if (queues_[i].get() == &changed) return *queues_[i ^ 1U];
    require(false, "a queue has a peer");
    return *queues_[0];
  }
  /// The QP goes, and another takes its place.
  void renew(FuzzInput& input) {
    const size_t index = input.byte() % queues_.size();
    Queue& old = *queues_[index];
    Host& host = old.host;
    ibv_srq* const srq = old.srq;
    const ibv_qp_type type = old.type;
    if (index == 7 || (input.byte() & 3) != 0) return;  // others send to the last one by its number
    poll();
    queues_[index].reset();
    poll();
    queues_[index] = std::make_unique<Queue>(host, cqs_[&host == &a_ ? 0 : 1], type, srq);
    Queue& peer = *queues_[index ^ 1U];
    queues_[index]->connect(peer.host, peer.qp->qp_num);
  }
  /// Completions of what a reset threw away may still come.
  void forget(Queue& reset) {
    poll();
    reset.sends.clear();
    reset.receives.clear();
  }

  void poll() {
    for (int round = 0; round < 6; ++round) {
      for (ibv_cq* cq : cqs_) {
        std::array<ibv_wc, 32> completions{};
        const int count = ibv_poll_cq(cq, completions.size(), completions.data());
        require(count >= 0, "a CQ that is large enough can be polled");
        for (int i = 0; i < count; ++i) take(cq == cqs_[0] ? a_ : b_, completions[static_cast<size_t>(i)]);
        if (count == static_cast<int>(completions.size())) --round;
      }
      faultline_progress(a_.context);
      faultline_progress(b_.context);
    }
  }
  void take(const Host& host, const ibv_wc& wc) {
    if ((wc.wr_id & kShared) != 0) return;
    Queue* owner = nullptr;
    for (const auto& candidate : queues_)
      if (candidate != nullptr && &candidate->host == &host && candidate->qp->qp_num == wc.qp_num)
        owner = candidate.get();
    if (owner == nullptr) return;  // gone meanwhile
    std::deque<Queue::Owed>& owed = (wc.wr_id & kReceive) != 0 ? owner->receives : owner->sends;
    // In order: what is passed over succeeded without a word, which a receive never does.
    while (!owed.empty() && owed.front().wr_id != wc.wr_id) {
      require(!owed.front().signaled, "completions come in order, each once");
      owed.pop_front();
    }
    require(!owed.empty(), "only what was taken completes, once");
    owed.pop_front();
  }

  Host& a_ = hosts().a;
  Host& b_ = hosts().b;
  std::vector<ibv_cq*> cqs_;
  ibv_srq* srq_ = nullptr;
  ibv_ah* ah_ = nullptr;
  std::vector<std::unique_ptr<Queue>> queues_;
  uint64_t next_id_ = 1;
};

}  // namespace
}  // namespace faultline::fuzz

extern "C" [[gnu::visibility("default")]] int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  faultline::fuzz::FuzzInput input(data, bytes);
  faultline::fuzz::Bed bed;
  bed.run(input);
  return 0;
}
