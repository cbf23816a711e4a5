// SPDX-License-Identifier: BSD-3-Clause
// Each call of verbs fails with the error that a scenario asks for, once, and without effect: the same call
// then succeeds. errno has the error too, as after a failed ioctl(2) for a real device.
#include "stack/trouble/calls.hpp"

#include <cerrno>
#include <chrono>
#include <functional>
#include <map>

#include <fcntl.h>
#include <unistd.h>

#include "stack/verbs/completion/later_calls.hpp"
#include "stack/verbs/memory/later_calls.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/verbs/fixture.hpp"
#include "tests/unit/verbs/trouble/play.hpp"

namespace faultline::verbs::test::calls_test {
namespace {

/// One object of each kind, on a device with an RC QP that is connected to itself.
struct World {
  World() : end("mem0") {
    EXPECT_EQ(end.to_init(), 0);
    EXPECT_EQ(end.to_rtr(end.gid(), end.qp->qp_num), 0);
    EXPECT_EQ(end.to_rts(), 0);
    region = end.add_region(pages, kAllRights | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND);
    channel = ibv_create_comp_channel(end.context);
    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    fcntl(end.context->async_fd, F_SETFL, O_NONBLOCK);
    ibv_cq_init_attr_ex cq_init{};
    cq_init.cqe = 16;
    extended_cq = ibv_create_cq_ex(end.context, &cq_init);
    ibv_td_init_attr td_init{};
    td = ibv_alloc_td(end.context, &td_init);
    ibv_srq_init_attr srq_init{nullptr, {16, 1, 0}};
    srq = ibv_create_srq(end.pd, &srq_init);
    ibv_qp_init_attr ud{};
    ud.send_cq = ud.recv_cq = end.cq;
    ud.qp_type = IBV_QPT_UD;
    ud.cap = {4, 4, 1, 1, 0};
    datagrams = ibv_create_qp(end.pd, &ud);
    ibv_xrcd_init_attr xrcd_init{};
    xrcd_init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    xrcd_init.fd = -1;
    xrcd_init.oflags = O_CREAT;
    xrcd = ibv_open_xrcd(end.context, &xrcd_init);
    ibv_qp_init_attr_ex target_init{};
    target_init.qp_type = IBV_QPT_XRC_RECV;
    target_init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    target_init.xrcd = xrcd;
    target = ibv_create_qp_ex(end.context, &target_init);
    ah_attributes.is_global = 1;
    ah_attributes.port_num = 1;
    ah_attributes.grh.dgid = end.gid();
    ah = ibv_create_ah(end.pd, &ah_attributes);
    window = ibv_alloc_mw(end.pd, IBV_MW_TYPE_1);
    ibv_alloc_dm_attr dm_init{4096, 0, 0};
    memory = ibv_alloc_dm(end.context, &dm_init);
    ibv_qp_init_attr_ex wr_init{};
    wr_init.send_cq = wr_init.recv_cq = end.cq;
    wr_init.cap = {4, 4, 1, 1, 0};
    wr_init.qp_type = IBV_QPT_RC;
    wr_init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wr_init.pd = end.pd;
    wr_init.send_ops_flags = IBV_QP_EX_WITH_SEND;
    builder = ibv_create_qp_ex(end.context, &wr_init);
    std::swap(end.qp, builder);
    EXPECT_EQ(end.to_init(), 0);
    EXPECT_EQ(end.to_rtr(end.gid(), builder->qp_num), 0);
    EXPECT_EQ(end.to_rts(), 0);
    std::swap(end.qp, builder);
  }
  ~World() {
    if (memory != nullptr) ibv_free_dm(memory);
    if (window != nullptr) ibv_dealloc_mw(window);
    if (ah != nullptr) ibv_destroy_ah(ah);
    if (builder != nullptr) ibv_destroy_qp(builder);
    ibv_destroy_qp(target);
    if (xrcd != nullptr) ibv_close_xrcd(xrcd);
    ibv_destroy_qp(datagrams);
    if (srq != nullptr) ibv_destroy_srq(srq);
    if (td != nullptr) ibv_dealloc_td(td);
    if (extended_cq != nullptr) ibv_destroy_cq(ibv_cq_ex_to_cq(extended_cq));
    if (channel != nullptr) ibv_destroy_comp_channel(channel);
  }

  [[nodiscard]] int write_to_itself() const {
    ibv_sge sge = sge_of(region, 0, 8);
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {reinterpret_cast<uint64_t>(pages.data()) + 64, region->rkey};
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(end.qp, &wr, &bad);
  }

  const Pages pages{4096};
  End end;
  ibv_mr* region = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq_ex* extended_cq = nullptr;
  ibv_td* td = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* datagrams = nullptr;
  ibv_qp* target = nullptr;
  ibv_qp* builder = nullptr;
  ibv_xrcd* xrcd = nullptr;
  ibv_ah* ah = nullptr;
  ibv_ah_attr ah_attributes{};
  ibv_mw* window = nullptr;
  ibv_dm* memory = nullptr;
};

/// The errno of a call that returns an object, which `end` releases.
template <typename Object, typename End>
int error_of(Object* object, End end) {
  if (object == nullptr) return errno;
  end(object);
  return 0;
}
/// The errno of a call that returns it, and 0.
int error_of_number(int result) {
  return result < 0 ? errno : 0;
}
ibv_comp_cntr* create_counter(const World& w) {
  CounterAttributes wanted{};
  return ibv_create_comp_cntr(w.end.context, reinterpret_cast<ibv_comp_cntr_init_attr*>(&wanted));
}
/// Releases an object; then the pointer is null.
template <typename Object, typename Release>
int release_once(Object*& object, Release release) {
  const int error = release(object);
  if (error == 0) object = nullptr;
  return error;
}

ibv_gid group() {
  ibv_gid gid{};
  gid.raw[0] = 0xff;
  gid.raw[1] = 0x0e;
  gid.raw[15] = 1;
  return gid;
}

/// Gives up after a generous time.
void until(const std::function<bool()>& is_so) {
  const auto give_up = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  while (!is_so() && std::chrono::steady_clock::now() < give_up) {
  }
}

using Call = std::function<int(World&)>;
const std::map<std::string_view, Call>& calls() {
  static const std::map<std::string_view, Call> all{
      {"ibv_get_device_list",
       [](World&) { return error_of(ibv_get_device_list(nullptr), ibv_free_device_list); }},
      {"ibv_open_device",
       [](World& w) { return error_of(ibv_open_device(w.end.context->device), ibv_close_device); }},
      {"ibv_close_device",
       [](World& w) {
         static ibv_context* other = nullptr;
         if (other == nullptr) other = ibv_open_device(w.end.context->device);
         return release_once(other, ibv_close_device);
       }},
      {"ibv_import_device",
       [](World& w) {
         ibv_context* const context = ibv_import_device(w.end.context->cmd_fd);
         if (context == nullptr) return errno;
         context->cmd_fd = -1;  // the descriptor is the first context's
         return ibv_close_device(context);
       }},
      {"ibv_query_device",
       [](World& w) {
         ibv_device_attr attributes;
         return ibv_query_device(w.end.context, &attributes);
       }},
      {"ibv_query_port",
       [](World& w) {
         ibv_port_attr attributes;
         return query_port(w.end.context, 1, &attributes, sizeof attributes);
       }},
      {"ibv_query_gid",
       [](World& w) {
         ibv_gid gid;
         return error_of_number(ibv_query_gid(w.end.context, 1, 0, &gid));
       }},
      {"ibv_query_pkey",
       [](World& w) {
         __be16 pkey = 0;
         return error_of_number(ibv_query_pkey(w.end.context, 1, 0, &pkey));
       }},
      {"ibv_query_rt_values",
       [](World& w) {
         ibv_values_ex values{};
         values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
         return ibv_query_rt_values_ex(w.end.context, &values);
       }},
      {"ibv_get_async_event",
       [](World& w) {
         raise_device_event("mem0", transport::AsyncEvent::port_active);
         ibv_async_event event;
         return error_of_number(ibv_get_async_event(w.end.context, &event));
       }},
      {"ibv_alloc_pd", [](World& w) { return error_of(ibv_alloc_pd(w.end.context), ibv_dealloc_pd); }},
      {"ibv_alloc_parent_domain",
       [](World& w) {
         ibv_parent_domain_init_attr init{};
         init.pd = w.end.pd;
         return error_of(ibv_alloc_parent_domain(w.end.context, &init), ibv_dealloc_pd);
       }},
      {"ibv_import_pd",
       [](World& w) { return error_of(ibv_import_pd(w.end.context, w.end.pd->handle), ibv_unimport_pd); }},
      {"ibv_dealloc_pd",
       [](World& w) {
         static ibv_pd* other = nullptr;
         if (other == nullptr) other = ibv_alloc_pd(w.end.context);
         return release_once(other, ibv_dealloc_pd);
       }},
      {"ibv_alloc_td",
       [](World& w) {
         ibv_td_init_attr init{};
         return error_of(ibv_alloc_td(w.end.context, &init), ibv_dealloc_td);
       }},
      {"ibv_dealloc_td", [](World& w) { return release_once(w.td, ibv_dealloc_td); }},
      {"ibv_reg_mr",
       [](World& w) { return error_of(ibv_reg_mr(w.end.pd, w.pages.data(), 4096, 0), ibv_dereg_mr); }},
      {"ibv_rereg_mr",
       [](World& w) {
         const int result = ibv_rereg_mr(w.region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
         return result == 0 ? 0 : errno;
       }},
      {"ibv_import_mr",
       [](World& w) { return error_of(ibv_import_mr(w.end.pd, w.region->handle), ibv_unimport_mr); }},
      {"ibv_dereg_mr",
       [](World& w) {
         const int error = release_once(w.region, ibv_dereg_mr);
         if (error == 0) w.end.regions.clear();
         return error;
       }},
      {"ibv_advise_mr",
       [](World& w) {
         ibv_sge sge = sge_of(w.region, 0, 4096);
         return ibv_advise_mr(w.end.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
       }},
      {"ibv_alloc_buf",
       [](World& w) {
         ibv_buf* buffer = nullptr;
         if (ibv_alloc_buf(w.end.pd, 64, &buffer) == nullptr) return errno;
         ibv_free_buf(buffer);
         return 0;
       }},
      {"ibv_alloc_mw",
       [](World& w) { return error_of(ibv_alloc_mw(w.end.pd, IBV_MW_TYPE_2), ibv_dealloc_mw); }},
      {"ibv_bind_mw",
       [](World& w) {
         ibv_mw_bind bind{};
         bind.bind_info = {w.region, w.pages.address(), 64, IBV_ACCESS_REMOTE_WRITE};
         return ibv_bind_mw(w.end.qp, w.window, &bind);
       }},
      {"ibv_dealloc_mw", [](World& w) { return release_once(w.window, ibv_dealloc_mw); }},
      {"ibv_alloc_dm",
       [](World& w) {
         ibv_alloc_dm_attr init{4096, 0, 0};
         return error_of(ibv_alloc_dm(w.end.context, &init), ibv_free_dm);
       }},
      {"ibv_import_dm",
       [](World& w) { return error_of(ibv_import_dm(w.end.context, w.memory->handle), ibv_unimport_dm); }},
      {"ibv_free_dm", [](World& w) { return release_once(w.memory, ibv_free_dm); }},
      {"ibv_memcpy_to_dm", [](World& w) { return ibv_memcpy_to_dm(w.memory, 0, w.pages.data(), 64); }},
      {"ibv_memcpy_from_dm", [](World& w) { return ibv_memcpy_from_dm(w.pages.data(), w.memory, 0, 64); }},
      {"ibv_create_comp_cntr", [](World& w) { return error_of(create_counter(w), ibv_destroy_comp_cntr); }},
      {"ibv_destroy_comp_cntr",
       [](World& w) {
         ibv_comp_cntr* const counter = create_counter(w);
         const int error = ibv_destroy_comp_cntr(counter);
         if (error != 0) ibv_destroy_comp_cntr(counter);
         return error;
       }},
      {"ibv_qp_attach_comp_cntr",
       [](World& w) {
         ibv_comp_cntr* const counter = create_counter(w);
         // The QP of the world is beyond INIT: without a scenario's errno, EINVAL.
         AttachAttributes wanted{.comp_mask = 0, .operations = 1};
         const int error = ibv_qp_attach_comp_cntr(w.end.qp, counter,
                                                   reinterpret_cast<ibv_qp_attach_comp_cntr_attr*>(&wanted));
         ibv_destroy_comp_cntr(counter);
         return error == EINVAL ? 0 : error;
       }},
      {"ibv_create_comp_channel",
       [](World& w) { return error_of(ibv_create_comp_channel(w.end.context), ibv_destroy_comp_channel); }},
      {"ibv_destroy_comp_channel",
       [](World& w) { return release_once(w.channel, ibv_destroy_comp_channel); }},
      {"ibv_get_cq_event",
       [](World& w) {
         ibv_cq* cq = nullptr;
         void* user = nullptr;
         const int error = error_of_number(ibv_get_cq_event(w.channel, &cq, &user));
         return error == EAGAIN ? 0 : error;  // it would wait
       }},
      {"ibv_create_cq",
       [](World& w) {
         return error_of(ibv_create_cq(w.end.context, 4, nullptr, nullptr, 0), ibv_destroy_cq);
       }},
      {"ibv_resize_cq", [](World& w) { return ibv_resize_cq(w.end.cq, 300); }},
      {"ibv_modify_cq",
       [](World& w) {
         ibv_modify_cq_attr attributes{IBV_CQ_ATTR_MODERATE, {4, 10}};
         return ibv_modify_cq(w.end.cq, &attributes);
       }},
      {"ibv_destroy_cq",
       [](World& w) {
         ibv_cq* cq = ibv_cq_ex_to_cq(w.extended_cq);
         const int error = ibv_destroy_cq(cq);
         if (error == 0) w.extended_cq = nullptr;
         return error;
       }},
      {"ibv_poll_cq",
       [](World& w) {
         // Only polls that find completions are counted.
         EXPECT_EQ(w.write_to_itself(), 0);
         ibv_wc wc;
         int got = 0;
         until([&] { return (got = ibv_poll_cq(w.end.cq, 1, &wc)) != 0; });
         return got > 0 ? 0 : EIO;
       }},
      {"ibv_start_poll",
       [](World& w) {
         EXPECT_EQ(w.write_to_itself(), 0);
         ibv_cq_ex* const cq = static_cast<ibv_cq_ex*>(&cq_of(w.end.cq));
         ibv_poll_cq_attr attributes{};
         int error = ENOENT;
         until([&] { return (error = ibv_start_poll(cq, &attributes)) != ENOENT; });
         if (error == 0) ibv_end_poll(cq);
         return error;
       }},
      {"ibv_req_notify_cq", [](World& w) { return ibv_req_notify_cq(w.end.cq, 0); }},
      {"ibv_create_qp",
       [](World& w) {
         ibv_qp_init_attr init{};
         init.send_cq = init.recv_cq = w.end.cq;
         init.qp_type = IBV_QPT_UC;
         init.cap = {4, 4, 1, 1, 0};
         return error_of(ibv_create_qp(w.end.pd, &init), ibv_destroy_qp);
       }},
      {"ibv_open_qp",
       [](World& w) {
         ibv_qp_open_attr open{};
         open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
         open.qp_num = w.target->qp_num;
         open.xrcd = w.xrcd;
         open.qp_type = IBV_QPT_XRC_RECV;
         return error_of(ibv_open_qp(w.end.context, &open), ibv_destroy_qp);
       }},
      {"ibv_modify_qp",
       [](World& w) {
         ibv_qp_attr attributes{};
         attributes.qp_state = IBV_QPS_ERR;
         return ibv_modify_qp(w.end.qp, &attributes, IBV_QP_STATE);
       }},
      {"ibv_query_qp",
       [](World& w) {
         ibv_qp_attr attributes;
         return ibv_query_qp(w.end.qp, &attributes, IBV_QP_STATE, nullptr);
       }},
      {"ibv_destroy_qp", [](World& w) { return release_once(w.builder, ibv_destroy_qp); }},
      {"ibv_attach_mcast",
       [](World& w) {
         const ibv_gid gid = group();
         const int error = ibv_attach_mcast(w.datagrams, &gid, 0);
         if (error == 0) ibv_detach_mcast(w.datagrams, &gid, 0);
         return error;
       }},
      {"ibv_detach_mcast",
       [](World& w) {
         const ibv_gid gid = group();
         EXPECT_EQ(ibv_attach_mcast(w.datagrams, &gid, 0), 0);
         return ibv_detach_mcast(w.datagrams, &gid, 0);
       }},
      {"ibv_create_srq",
       [](World& w) {
         ibv_srq_init_attr init{nullptr, {4, 1, 0}};
         return error_of(ibv_create_srq(w.end.pd, &init), ibv_destroy_srq);
       }},
      {"ibv_modify_srq",
       [](World& w) {
         ibv_srq_attr attributes{0, 0, 1};
         return ibv_modify_srq(w.srq, &attributes, IBV_SRQ_LIMIT);
       }},
      {"ibv_query_srq",
       [](World& w) {
         ibv_srq_attr attributes;
         return ibv_query_srq(w.srq, &attributes);
       }},
      {"ibv_destroy_srq", [](World& w) { return release_once(w.srq, ibv_destroy_srq); }},
      {"ibv_open_xrcd",
       [](World& w) {
         ibv_xrcd_init_attr init{};
         init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
         init.fd = -1;
         init.oflags = O_CREAT;
         return error_of(ibv_open_xrcd(w.end.context, &init), ibv_close_xrcd);
       }},
      {"ibv_close_xrcd",
       [](World& w) {
         static ibv_xrcd* other = nullptr;
         ibv_xrcd_init_attr init{};
         init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
         init.fd = -1;
         init.oflags = O_CREAT;
         if (other == nullptr) other = ibv_open_xrcd(w.end.context, &init);
         return release_once(other, ibv_close_xrcd);
       }},
      {"ibv_create_ah",
       [](World& w) { return error_of(ibv_create_ah(w.end.pd, &w.ah_attributes), ibv_destroy_ah); }},
      {"ibv_init_ah_from_wc",
       [](World& w) {
         ibv_wc wc{};
         ibv_ah_attr attributes;
         return error_of_number(ibv_init_ah_from_wc(w.end.context, 1, &wc, nullptr, &attributes));
       }},
      {"ibv_resolve_eth_l2_from_gid",
       [](World& w) {
         std::array<uint8_t, 6> mac{};
         return ibv_resolve_eth_l2_from_gid(w.end.context, &w.ah_attributes, mac.data(), nullptr);
       }},
      {"ibv_destroy_ah", [](World& w) { return release_once(w.ah, ibv_destroy_ah); }},
      {"ibv_post_send", [](World& w) { return w.write_to_itself(); }},
      {"ibv_wr_complete",
       [](World& w) {
         ibv_qp_ex* const qp = ibv_qp_to_qp_ex(w.builder);
         ibv_wr_start(qp);
         return ibv_wr_complete(qp);
       }},
      {"ibv_post_recv",
       [](World& w) {
         ibv_recv_wr wr{};
         ibv_recv_wr* bad = nullptr;
         return ibv_post_recv(w.end.qp, &wr, &bad);
       }},
      {"ibv_post_srq_recv",
       [](World& w) {
         ibv_recv_wr wr{};
         ibv_recv_wr* bad = nullptr;
         return ibv_post_srq_recv(w.srq, &wr, &bad);
       }},
  };
  return all;
}

class Calls : public ::testing::TestWithParam<std::string_view> {};

TEST_P(Calls, FailOnceAndWithoutEffect) {
  const std::string name(GetParam());
  const auto call = calls().find(name);
  ASSERT_NE(call, calls().end()) << "a call of scenarios that this test lacks";
  // With the error that ibv_poll_cq stands for.
  Play play("illegal = true\n" + Play::rule("call = \"" + name + "\"", R"(errno = "EIO")"));
  World world;
  play.arm();
  errno = 0;
  EXPECT_EQ(call->second(world), EIO);
  EXPECT_EQ(errno, EIO);
  ASSERT_EQ(play.lines().size(), 1U);
  EXPECT_NE(play.lines()[0].find("\"event\":\"call " + name + "\""), std::string::npos) << play.lines()[0];
  EXPECT_EQ(call->second(world), 0);
  EXPECT_EQ(play.lines().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(All, Calls,
                         ::testing::ValuesIn(trouble::verbs_calls().begin(), trouble::verbs_calls().end()),
                         [](const auto& name) { return std::string(name.param); });

TEST(Trouble, ACallTakesLonger) {
  for (const std::string name : {"ibv_reg_mr", "ibv_create_qp", "ibv_post_send"}) {
    const auto call = calls().find(name);
    ASSERT_NE(call, calls().end());
    Play play(Play::rule("call = \"" + name + "\"", R"(call = "delay", delay_us = 20000)"));
    World world;
    play.arm();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(call->second(world), 0) << name;
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20)) << name;
    EXPECT_EQ(play.lines().size(), 1U);
  }
}

TEST(Trouble, DevicesWithoutAScenarioHaveNoneOfItsFunctions) {
  const World world;
  const ibv_context_ops& ops = world.end.context->ops;
  EXPECT_EQ(ops.post_send, post_send);
  EXPECT_EQ(ops.post_recv, post_recv);
  EXPECT_EQ(ops.post_srq_recv, post_srq_recv);
  EXPECT_EQ(ops.poll_cq, poll_cq);
  EXPECT_EQ(ops.req_notify_cq, req_notify_cq);
  EXPECT_EQ(ops.bind_mw, bind_mw);
  for (const auto& [name, call] : calls()) {
    World fresh;
    EXPECT_EQ(call(fresh), 0) << name;
  }
}

}  // namespace
}  // namespace faultline::verbs::test::calls_test
