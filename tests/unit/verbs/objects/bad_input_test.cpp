// SPDX-License-Identifier: BSD-3-Clause
// Programs that misuse the API. Each entry point gets null, destroyed objects, and extreme arguments, and
// objects are destroyed before those that depend on them. The errno is that of the man pages, and nothing
// crashes.
#include <climits>
#include <functional>

#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::bad_input_test {

namespace {

int error_of_result(int result) {
  // "The value of errno" (man pages of verbs): programs print either.
  if (result > 0) {
    EXPECT_EQ(errno, result);
  }
  return result < 0 ? errno : result;
}
int error_of_result(const void* object) {
  return object == nullptr ? errno : 0;
}

/// Returns the result of a call, 0 or an errno, from its return value or errno.
template <typename Call>
int error_of(Call call) {
  errno = 0;
  return error_of_result(call());
}

/// One object of each kind, or pointers to destroyed ones.
struct Objects {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_td* td = nullptr;
  ibv_mr* mr = nullptr;
  ibv_mw* mw = nullptr;
  ibv_dm* dm = nullptr;
  ibv_ah* ah = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_xrcd* xrcd = nullptr;
};

ibv_qp* make_qp(ibv_pd* pd, ibv_cq* cq, ibv_srq* srq, ibv_qp_cap cap = {4, 4, 1, 1, 0}) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  init.cap = cap;
  return ibv_create_qp(pd, &init);
}

ibv_xrcd* make_xrcd(const verbs_context& verbs, ibv_context* context) {
  ibv_xrcd_init_attr init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  return verbs.open_xrcd(context, &init);
}

class BadInput : public ::testing::Test {
 protected:
  Objects make() const {
    Objects all;
    all.context = open("mem1");
    all.pd = ibv_alloc_pd(all.context);
    ibv_td_init_attr td{};
    all.td = ibv_alloc_td(all.context, &td);
    all.mr = ibv_reg_mr(all.pd, pages.data(), pages.size(), kAllRights | IBV_ACCESS_MW_BIND);
    all.mw = ibv_alloc_mw(all.pd, IBV_MW_TYPE_1);
    ibv_alloc_dm_attr dm{4096, 0, 0};
    all.dm = ibv_alloc_dm(all.context, &dm);
    ibv_ah_attr ah = End::rtr_attributes(own.gid(), 1).ah_attr;
    all.ah = ibv_create_ah(all.pd, &ah);
    all.channel = ibv_create_comp_channel(all.context);
    all.cq = ibv_create_cq(all.context, 16, nullptr, all.channel, 0);
    ibv_srq_init_attr srq{nullptr, {4, 1, 0}};
    all.srq = ibv_create_srq(all.pd, &srq);
    all.qp = make_qp(all.pd, all.cq, nullptr);
    all.xrcd = make_xrcd(*verbs, all.context);
    for (const void* one :
         std::initializer_list<const void*>{all.context, all.pd, all.td, all.mr, all.mw, all.dm, all.ah,
                                            all.channel, all.cq, all.srq, all.qp, all.xrcd})
      EXPECT_NE(one, nullptr);
    return all;
  }
  void destroy(const Objects& all) const {
    EXPECT_EQ(ibv_destroy_qp(all.qp), 0);
    EXPECT_EQ(ibv_destroy_srq(all.srq), 0);
    EXPECT_EQ(ibv_destroy_cq(all.cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(all.channel), 0);
    EXPECT_EQ(ibv_destroy_ah(all.ah), 0);
    EXPECT_EQ(ibv_dealloc_mw(all.mw), 0);
    EXPECT_EQ(ibv_dereg_mr(all.mr), 0);
    EXPECT_EQ(ibv_free_dm(all.dm), 0);
    EXPECT_EQ(ibv_dealloc_td(all.td), 0);
    EXPECT_EQ(ibv_close_xrcd(all.xrcd), 0);
    EXPECT_EQ(ibv_dealloc_pd(all.pd), 0);
    EXPECT_EQ(ibv_close_device(all.context), 0);
  }

  struct Call {
    const char* name;
    std::function<int()> run;
  };
  /// Returns each call whose first object is one of `gone`. An inline function of the header that
  /// dereferences the object is replaced by the call that it makes.
  [[nodiscard]] std::vector<Call> calls_with(const Objects& gone) const {
    const auto call = [](const char* name, auto run) {
      return Call{name, [name, run] {
                    SCOPED_TRACE(name);
                    return error_of(run);
                  }};
    };
    std::vector<Call> all;
    static ibv_device_attr device;
    static ibv_device_attr_ex device_ex;
    static ibv_port_attr port;
    static ibv_gid gid;
    static ibv_gid_entry entry;
    static __be16 pkey;
    static ibv_async_event event;
    static ibv_qp_init_attr qp_init;
    static ibv_qp_attr qp_attr;
    static ibv_srq_init_attr srq_init;
    static ibv_srq_attr srq_attr;
    static ibv_ah_attr ah_attr;
    static ibv_wc wc;
    static ibv_cq* event_cq;
    static void* event_context;
    static std::array<uint8_t, 6> mac;
    static std::array<uint8_t, 16> bytes;
    const verbs_context* const ops = verbs;
    ibv_context* const own_context = own.context;
    ibv_pd* const own_pd = own.pd;
    ibv_cq* const own_cq = own.cq;
    ibv_qp* const own_qp = own.qp;
    ibv_mr* const own_mr = region;
    ibv_dm* const own_dm = there.dm;
    uint8_t* const memory = pages.data();
    const ibv_context_ops& old_ops = own.context->ops;
    for (ibv_context* const context : {gone.context}) {
      all.push_back(call("close_device", [=] { return ibv_close_device(context); }));
      all.push_back(call("query_device", [=] { return ibv_query_device(context, &device); }));
      all.push_back(call("query_device_ex", [=] {
        return ops->query_device_ex(context, nullptr, &device_ex, sizeof device_ex);
      }));
      all.push_back(call("query_port", [=] { return ops->query_port(context, 1, &port, sizeof port); }));
      all.push_back(call("query_gid", [=] { return ibv_query_gid(context, 1, 0, &gid); }));
      all.push_back(call("query_gid_ex", [=] { return ibv_query_gid_ex(context, 1, 0, &entry, 0); }));
      all.push_back(call("query_gid_table",
                         [=] { return -static_cast<int>(ibv_query_gid_table(context, &entry, 1, 0)); }));
      all.push_back(call("query_pkey", [=] { return ibv_query_pkey(context, 1, 0, &pkey); }));
      all.push_back(call("get_pkey_index", [=] { return ibv_get_pkey_index(context, 1, pkey); }));
      all.push_back(call("get_async_event", [=] { return ibv_get_async_event(context, &event); }));
      all.push_back(call("query_rt_values", [=] {
        ibv_values_ex values{};
        return ops->query_rt_values(context, &values);
      }));
      all.push_back(call("resolve_eth_l2_from_gid", [=] {
        return ibv_resolve_eth_l2_from_gid(context, &ah_attr, mac.data(), nullptr);
      }));
      all.push_back(
          call("init_ah_from_wc", [=] { return ibv_init_ah_from_wc(context, 1, &wc, nullptr, &ah_attr); }));
      all.push_back(call("alloc_pd", [=] { return ibv_alloc_pd(context); }));
      all.push_back(call("alloc_td", [=] {
        ibv_td_init_attr init{};
        return ops->alloc_td(context, &init);
      }));
      all.push_back(call("alloc_parent_domain", [=] {
        ibv_parent_domain_init_attr init{};
        init.pd = own_pd;
        return ops->alloc_parent_domain(context, &init);
      }));
      all.push_back(call("alloc_dm", [=] {
        ibv_alloc_dm_attr init{64, 0, 0};
        return ops->alloc_dm(context, &init);
      }));
      all.push_back(call("create_comp_channel", [=] { return ibv_create_comp_channel(context); }));
      all.push_back(call("create_cq", [=] { return ibv_create_cq(context, 1, nullptr, nullptr, 0); }));
      all.push_back(call("create_cq_ex", [=] {
        ibv_cq_init_attr_ex init{};
        init.cqe = 1;
        return ops->create_cq_ex(context, &init);
      }));
      all.push_back(call("create_qp_ex", [=] {
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_RC;
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
        init.pd = own_pd;
        init.send_cq = init.recv_cq = own_cq;
        return ops->create_qp_ex(context, &init);
      }));
      all.push_back(call("open_qp", [=] {
        ibv_qp_open_attr init{};
        return ops->open_qp(context, &init);
      }));
      all.push_back(call("create_srq_ex", [=] {
        ibv_srq_init_attr_ex init{};
        init.comp_mask = IBV_SRQ_INIT_ATTR_PD;
        init.pd = own_pd;
        init.attr.max_wr = 1;
        return ops->create_srq_ex(context, &init);
      }));
      all.push_back(call("open_xrcd", [=] { return make_xrcd(*ops, context); }));
      all.push_back(
          call("faultline_query_counters", [=] { return faultline_query_counters(context, nullptr, 0); }));
      all.push_back(call("faultline_measure_port_tx",
                         [=] { return -static_cast<int>(faultline_measure_port_tx(context, 64, 1)); }));
      all.push_back(call("faultline_measure_port_rx",
                         [=] { return -static_cast<int>(faultline_measure_port_rx(context, 1)); }));
      all.push_back(call("import_pd", [=] { return ibv_import_pd(context, 1); }));
      all.push_back(call("import_dm", [=] { return ibv_import_dm(context, 1); }));
    }
    for (ibv_pd* const pd : {gone.pd}) {
      all.push_back(call("dealloc_pd", [=] { return ibv_dealloc_pd(pd); }));
      all.push_back(call(
          "reg_mr", [=] { return ibv_reg_mr_iova2(pd, memory, bytes.size(), 0, IBV_ACCESS_LOCAL_WRITE); }));
      all.push_back(
          call("reg_dm_mr", [=] { return ops->reg_dm_mr(pd, gone.dm, 0, 64, IBV_ACCESS_ZERO_BASED); }));
      all.push_back(call("import_mr", [=] { return ibv_import_mr(pd, 1); }));
      all.push_back(call("alloc_mw", [=] { return old_ops.alloc_mw(pd, IBV_MW_TYPE_1); }));
      all.push_back(call("advise_mr", [=] {
        ibv_sge sge{0, 1, 1};
        return ops->advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1);
      }));
      all.push_back(call("create_ah", [=] { return ibv_create_ah(pd, &ah_attr); }));
      all.push_back(call("create_ah_from_wc", [=] { return ibv_create_ah_from_wc(pd, &wc, nullptr, 1); }));
      all.push_back(call("create_srq", [=] { return ibv_create_srq(pd, &srq_init); }));
      all.push_back(call("create_qp", [=] { return ibv_create_qp(pd, &qp_init); }));
      all.push_back(call("create_qp, of one that is there", [=] { return make_qp(pd, own_cq, nullptr); }));
      all.push_back(call("alloc_parent_domain, of one that is there", [=] {
        ibv_parent_domain_init_attr init{};
        init.pd = pd;
        return ops->alloc_parent_domain(own_context, &init);
      }));
      all.push_back(call("rereg_mr to it", [=] {
        return ibv_rereg_mr(own_mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT
                   ? errno
                   : 0;
      }));
    }
    all.push_back(call("dealloc_td", [=] { return ops->dealloc_td(gone.td); }));
    all.push_back(call("dereg_mr", [=] { return ibv_dereg_mr(gone.mr); }));
    all.push_back(call("rereg_mr", [=] {
      return ibv_rereg_mr(gone.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) ==
                     IBV_REREG_MR_ERR_INPUT
                 ? errno
                 : 0;
    }));
    all.push_back(call("faultline_query_mr_counters",
                       [=] { return faultline_query_mr_counters(gone.mr, nullptr, 0); }));
    all.push_back(call("dealloc_mw", [=] { return old_ops.dealloc_mw(gone.mw); }));
    all.push_back(call("bind_mw", [=] {
      ibv_mw_bind bind{};
      bind.bind_info = {own_mr, reinterpret_cast<uint64_t>(memory), 64, IBV_ACCESS_REMOTE_WRITE};
      return old_ops.bind_mw(own_qp, gone.mw, &bind);
    }));
    all.push_back(call("free_dm", [=] { return ops->free_dm(gone.dm); }));
    all.push_back(call("reg_dm_mr, of one that is gone",
                       [=] { return ops->reg_dm_mr(own_pd, gone.dm, 0, 64, IBV_ACCESS_ZERO_BASED); }));
    all.push_back(call("memcpy_to_dm", [=] { return own_dm->memcpy_to_dm(gone.dm, 0, bytes.data(), 4); }));
    all.push_back(
        call("memcpy_from_dm", [=] { return own_dm->memcpy_from_dm(bytes.data(), gone.dm, 0, 4); }));
    all.push_back(call("destroy_ah", [=] { return ibv_destroy_ah(gone.ah); }));
    all.push_back(call("destroy_comp_channel", [=] { return ibv_destroy_comp_channel(gone.channel); }));
    all.push_back(
        call("get_cq_event", [=] { return ibv_get_cq_event(gone.channel, &event_cq, &event_context); }));
    all.push_back(call("destroy_cq", [=] { return ibv_destroy_cq(gone.cq); }));
    all.push_back(call("resize_cq", [=] { return ibv_resize_cq(gone.cq, 8); }));
    all.push_back(call("modify_cq", [=] {
      ibv_modify_cq_attr attributes{IBV_CQ_ATTR_MODERATE, {1, 1}};
      return ops->modify_cq(gone.cq, &attributes);
    }));
    all.push_back(call("create_qp with its CQ", [=] { return make_qp(own_pd, gone.cq, nullptr); }));
    all.push_back(call("destroy_srq", [=] { return ibv_destroy_srq(gone.srq); }));
    all.push_back(call("query_srq", [=] { return ibv_query_srq(gone.srq, &srq_attr); }));
    all.push_back(call("modify_srq", [=] { return ibv_modify_srq(gone.srq, &srq_attr, IBV_SRQ_LIMIT); }));
    all.push_back(call("get_srq_num", [=] {
      uint32_t number = 0;
      return ops->get_srq_num(gone.srq, &number);
    }));
    all.push_back(call("destroy_qp", [=] { return ibv_destroy_qp(gone.qp); }));
    all.push_back(call("query_qp", [=] { return ibv_query_qp(gone.qp, &qp_attr, IBV_QP_STATE, &qp_init); }));
    all.push_back(call("modify_qp", [=] { return ibv_modify_qp(gone.qp, &qp_attr, IBV_QP_STATE); }));
    all.push_back(call("attach_mcast", [=] { return ibv_attach_mcast(gone.qp, &gid, 0); }));
    all.push_back(call("detach_mcast", [=] { return ibv_detach_mcast(gone.qp, &gid, 0); }));
    all.push_back(call("close_xrcd", [=] { return ops->close_xrcd(gone.xrcd); }));
    return all;
  }

  const Pages pages{8192};
  End own{"mem0"};
  const verbs_context* verbs = verbs_get_ctx(own.context);
  ibv_mr* region = own.add_region(pages);
  Objects there = make();
  void TearDown() override { destroy(there); }
};

TEST_F(BadInput, NothingAtAll) {
  for (const Call& call : calls_with({})) EXPECT_EQ(call.run(), EINVAL) << call.name;
  ibv_unimport_pd(nullptr);
  ibv_unimport_mr(nullptr);
  ibv_unimport_dm(nullptr);
  ibv_ack_cq_events(nullptr, 1);
  ibv_ack_async_event(nullptr);
  ibv_free_device_list(nullptr);
  EXPECT_EQ(ibv_qp_to_qp_ex(nullptr), nullptr);
  EXPECT_EQ(error_of([] { return ibv_open_device(nullptr); }), EINVAL);
  EXPECT_EQ(ibv_get_device_name(nullptr), nullptr);
  EXPECT_EQ(ibv_get_device_index(nullptr), -1);
  EXPECT_EQ(ibv_get_device_guid(nullptr), 0U);
}

TEST_F(BadInput, WhatWasDestroyedAlready) {
  const Objects gone = make();
  destroy(gone);
  for (const Call& call : calls_with(gone)) EXPECT_EQ(call.run(), EINVAL) << call.name;
}

TEST_F(BadInput, PointersToSomethingElse) {
  std::array<uint64_t, 512> something{};
  const auto it = [&]<typename Object>(Object*& object) {
    object = reinterpret_cast<Object*>(something.data());
  };
  Objects wrong;
  it(wrong.context), it(wrong.pd), it(wrong.td), it(wrong.mr), it(wrong.mw), it(wrong.dm), it(wrong.ah);
  it(wrong.channel), it(wrong.cq), it(wrong.srq), it(wrong.qp), it(wrong.xrcd);
  for (const Call& call : calls_with(wrong)) EXPECT_EQ(call.run(), EINVAL) << call.name;
  for (const uint64_t word : something) EXPECT_EQ(word, 0U);
}

TEST_F(BadInput, NoPlaceForArgumentsOrAnswers) {
  const auto invalid = [](const char* name, auto call) { EXPECT_EQ(error_of(call), EINVAL) << name; };
  ibv_context* const context = own.context;
  invalid("query_device", [=] { return ibv_query_device(context, nullptr); });
  invalid("query_device_ex", [=, this] { return verbs->query_device_ex(context, nullptr, nullptr, 512); });
  invalid("query_port", [=, this] { return verbs->query_port(context, 1, nullptr, sizeof(ibv_port_attr)); });
  invalid("query_gid", [=] { return ibv_query_gid(context, 1, 0, nullptr); });
  invalid("query_gid_ex", [=] { return ibv_query_gid_ex(context, 1, 0, nullptr, 0); });
  invalid("query_gid_table", [=] { return -static_cast<int>(ibv_query_gid_table(context, nullptr, 16, 0)); });
  invalid("query_pkey", [=] { return ibv_query_pkey(context, 1, 0, nullptr); });
  invalid("query_rt_values", [=, this] { return verbs->query_rt_values(context, nullptr); });
  invalid("get_async_event", [=] { return ibv_get_async_event(context, nullptr); });
  invalid("get_cq_event", [this] { return ibv_get_cq_event(there.channel, nullptr, nullptr); });
  invalid("alloc_td", [=, this] { return verbs->alloc_td(context, nullptr); });
  invalid("alloc_parent_domain", [=, this] { return verbs->alloc_parent_domain(context, nullptr); });
  invalid("alloc_dm", [=, this] { return verbs->alloc_dm(context, nullptr); });
  invalid("create_cq_ex", [=, this] { return verbs->create_cq_ex(context, nullptr); });
  invalid("create_qp_ex", [=, this] { return verbs->create_qp_ex(context, nullptr); });
  invalid("open_qp", [=, this] { return verbs->open_qp(context, nullptr); });
  invalid("create_srq_ex", [=, this] { return verbs->create_srq_ex(context, nullptr); });
  invalid("open_xrcd", [=, this] { return verbs->open_xrcd(context, nullptr); });
  invalid("create_qp", [this] { return ibv_create_qp(own.pd, nullptr); });
  invalid("create_srq", [this] { return ibv_create_srq(own.pd, nullptr); });
  invalid("create_ah", [this] { return ibv_create_ah(own.pd, nullptr); });
  invalid("create_ah_from_wc", [this] { return ibv_create_ah_from_wc(own.pd, nullptr, nullptr, 1); });
  ibv_wc with_header{};
  with_header.wc_flags = IBV_WC_GRH;
  ibv_ah_attr ah{};
  invalid("init_ah_from_wc", [&] { return ibv_init_ah_from_wc(context, 1, &with_header, nullptr, &ah); });
  invalid("init_ah_from_wc", [&] { return ibv_init_ah_from_wc(context, 1, &with_header, nullptr, nullptr); });
  invalid("resolve_eth_l2", [&] { return ibv_resolve_eth_l2_from_gid(context, &ah, nullptr, nullptr); });
  invalid("modify_qp", [this] { return ibv_modify_qp(own.qp, nullptr, IBV_QP_STATE); });
  invalid("query_qp", [this] { return ibv_query_qp(own.qp, nullptr, IBV_QP_STATE, nullptr); });
  invalid("attach_mcast", [this] { return ibv_attach_mcast(own.qp, nullptr, 0); });
  invalid("detach_mcast", [this] { return ibv_detach_mcast(own.qp, nullptr, 0); });
  invalid("modify_cq", [this] { return verbs->modify_cq(there.cq, nullptr); });
  invalid("modify_srq", [this] { return ibv_modify_srq(there.srq, nullptr, IBV_SRQ_LIMIT); });
  invalid("query_srq", [this] { return ibv_query_srq(there.srq, nullptr); });
  invalid("get_srq_num", [this] { return verbs->get_srq_num(there.srq, nullptr); });
  invalid("advise_mr",
          [this] { return verbs->advise_mr(own.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 1); });
  EXPECT_EQ(context->ops.bind_mw(own.qp, there.mw, nullptr), EINVAL);
}

TEST_F(BadInput, OutOfAllProportion) {
  const auto error = [](auto call) { return error_of(call); };
  for (const int entries : {INT_MAX, 0, -1, INT_MIN}) {
    EXPECT_EQ(error([&] { return ibv_create_cq(own.context, entries, nullptr, nullptr, 0); }), EINVAL)
        << entries;
    EXPECT_EQ(error([&] { return ibv_resize_cq(own.cq, entries); }), EINVAL) << entries;
  }
  for (const int vector : {INT_MAX, 1, -1, INT_MIN})
    EXPECT_EQ(error([&] { return ibv_create_cq(own.context, 1, nullptr, nullptr, vector); }), EINVAL)
        << vector;
  for (size_t field = 0; field < 5; ++field) {
    std::array<uint32_t, 5> cap{1, 1, 1, 1, 0};
    cap.at(field) = UINT32_MAX;
    EXPECT_EQ(error([&] {
                return make_qp(own.pd, own.cq, nullptr, {cap[0], cap[1], cap[2], cap[3], cap[4]});
              }),
              EINVAL)
        << field;
  }
  for (const ibv_srq_attr attr :
       {ibv_srq_attr{UINT32_MAX, 1, 0}, ibv_srq_attr{0, 1, 0}, ibv_srq_attr{1, UINT32_MAX, 0}}) {
    ibv_srq_init_attr init{nullptr, attr};
    EXPECT_EQ(error([&] { return ibv_create_srq(own.pd, &init); }), EINVAL);
  }
  ibv_srq_attr limit{UINT32_MAX, 0, UINT32_MAX};
  EXPECT_EQ(ibv_modify_srq(there.srq, &limit, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(ibv_modify_srq(there.srq, &limit, IBV_SRQ_MAX_WR), EINVAL);
  EXPECT_EQ(ibv_modify_srq(there.srq, &limit, INT_MAX), EINVAL);
  void* const address = pages.data();
  for (const size_t length : {size_t{0}, SIZE_MAX, SIZE_MAX - pages.address(), size_t{1} << 62})
    for (const int access : {0, int{IBV_ACCESS_ON_DEMAND}})
      EXPECT_EQ(
          error([&] { return ibv_reg_mr_iova2(own.pd, address, length, 0, static_cast<unsigned>(access)); }),
          EINVAL)
          << length;
  EXPECT_EQ(error([&] { return ibv_reg_mr_iova2(own.pd, address, 4096, UINT64_MAX, 0); }), EINVAL);
  EXPECT_EQ(error([&] { return ibv_reg_mr_iova2(own.pd, address, 4096, 0, 1U << 30); }), EINVAL);
  EXPECT_EQ(error([&] { return ibv_reg_mr_iova2(own.pd, address, 4096, 0, IBV_ACCESS_REMOTE_WRITE); }),
            EINVAL);
  EXPECT_EQ(error([&] { return ibv_reg_mr_iova2(own.pd, nullptr, 4096, 0, IBV_ACCESS_LOCAL_WRITE); }), EFAULT)
      << "nothing is mapped there";
  ibv_sge sge{pages.address(), 4096, region->lkey};
  EXPECT_EQ(verbs->advise_mr(own.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, UINT32_MAX), EINVAL);
  EXPECT_EQ(ibv_rereg_mr(region, INT_MAX, own.pd, address, 4096, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, address, SIZE_MAX, 0),
            IBV_REREG_MR_ERR_INPUT);
  ibv_gid gid{};
  for (const int index : {INT_MAX, 16, -1, INT_MIN})
    EXPECT_EQ(error([&] { return ibv_query_gid(own.context, 1, index, &gid); }), EINVAL);
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(own.context, UINT32_MAX, 0, &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(own.context, 1, UINT32_MAX, &entry, 0), EINVAL);
  ibv_qp_attr attr{};
  EXPECT_EQ(ibv_modify_qp(own.qp, &attr, INT_MIN), EINVAL);
  EXPECT_EQ(ibv_modify_qp(own.qp, &attr, INT_MAX), EINVAL);
  EXPECT_EQ(error([&] { return ibv_alloc_mw(own.pd, static_cast<ibv_mw_type>(3)); }), EINVAL);
  // As far beyond the named values as the bits of the enumerations allow.
  EXPECT_NE(ibv_wc_status_str(static_cast<ibv_wc_status>(31)), nullptr);
  EXPECT_NE(ibv_event_type_str(static_cast<ibv_event_type>(31)), nullptr);
  EXPECT_NE(ibv_port_state_str(static_cast<ibv_port_state>(7)), nullptr);
  EXPECT_NE(ibv_node_type_str(static_cast<ibv_node_type>(7)), nullptr);
  EXPECT_EQ(ibv_rate_to_mbps(static_cast<ibv_rate>(31)), -1);
  EXPECT_EQ(ibv_rate_to_mult(static_cast<ibv_rate>(31)), -1);
  EXPECT_EQ(error([] { return ibv_import_device(INT_MAX); }), EBADF);
}

TEST_F(BadInput, DestroyedBeforeThoseThatNeedThem) {
  Objects all = make();
  ibv_mr* const device_memory = ibv_reg_dm_mr(all.pd, all.dm, 0, 4096, IBV_ACCESS_ZERO_BASED);
  ibv_qp* const sharing = make_qp(all.pd, all.cq, all.srq);
  ibv_parent_domain_init_attr parent_init{};
  parent_init.pd = all.pd;
  parent_init.td = all.td;
  ibv_pd* const parent = ibv_alloc_parent_domain(all.context, &parent_init);
  ASSERT_NE(device_memory, nullptr);
  ASSERT_NE(sharing, nullptr);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(all.pd), EBUSY);
  EXPECT_EQ(ibv_dealloc_td(all.td), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(all.cq), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(all.channel), EBUSY);
  EXPECT_EQ(ibv_destroy_srq(all.srq), EBUSY);
  EXPECT_EQ(ibv_free_dm(all.dm), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_destroy_qp(sharing), 0);
  EXPECT_EQ(ibv_dereg_mr(device_memory), 0);
  // Destroys one object after the other: each object of a PD holds a reference to it.
  destroy(all);
}

TEST_F(BadInput, PostsThatAreRefused) {
  ibv_sge sges[2]{sge_of(region, 0, 8), sge_of(region, 8, 8)};
  ibv_send_wr send{};
  send.sg_list = sges;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  ibv_recv_wr receive{0, nullptr, sges, 1};
  const auto post = [&](ibv_qp* qp) { return ibv_post_send(qp, &send, nullptr); };
  const auto post_receive = [&](ibv_qp* qp) { return ibv_post_recv(qp, &receive, nullptr); };
  ibv_qp* const qp = make_qp(own.pd, own.cq, nullptr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(post(qp), EINVAL) << "RESET";
  EXPECT_EQ(post_receive(qp), EINVAL) << "RESET";
  EXPECT_EQ(ibv_destroy_qp(qp), 0);

  ASSERT_EQ(own.to_init(), 0);
  EXPECT_EQ(post(own.qp), EINVAL) << "INIT";
  EXPECT_EQ(post_receive(own.qp), 0) << "INIT";
  ASSERT_EQ(own.to_rtr(own.gid(), own.qp->qp_num), 0);
  EXPECT_EQ(post(own.qp), EINVAL) << "RTR";
  ASSERT_EQ(own.to_rts(), 0);
  // The queues were created with four elements.
  for (const int count : {5, INT_MAX, -1, INT_MIN}) {
    send.num_sge = receive.num_sge = count;
    EXPECT_EQ(post(own.qp), EINVAL) << count;
    EXPECT_EQ(post_receive(own.qp), EINVAL) << count;
    EXPECT_EQ(ibv_post_srq_recv(there.srq, &receive, nullptr), EINVAL) << count;
  }
  send.num_sge = receive.num_sge = 1;
  send.sg_list = receive.sg_list = nullptr;
  EXPECT_EQ(post(own.qp), EINVAL);
  EXPECT_EQ(post_receive(own.qp), EINVAL);
  EXPECT_EQ(ibv_post_srq_recv(there.srq, &receive, nullptr), EINVAL);
  send.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(post(own.qp), EINVAL);
  send.sg_list = sges;
  sges[0].length = 1 << 20;
  EXPECT_EQ(post(own.qp), EINVAL) << "more inline than a queue holds";
  sges[0].length = UINT32_MAX;
  send.send_flags = 0;
  EXPECT_EQ(post(own.qp), EINVAL) << "more than a message holds";
  sges[0].length = 8;
  send.send_flags = 1U << 20;
  EXPECT_EQ(post(own.qp), EINVAL);
  send.send_flags = 0;
  send.opcode = IBV_WR_TSO;
  EXPECT_EQ(post(own.qp), EINVAL);
  send.opcode = IBV_WR_BIND_MW;
  EXPECT_EQ(post(own.qp), EINVAL) << "no window";
  // An empty list posts nothing. Polling fails without a buffer, and returns 0 without entries.
  EXPECT_EQ(ibv_post_send(own.qp, nullptr, nullptr), 0);
  EXPECT_EQ(ibv_post_recv(own.qp, nullptr, nullptr), 0);
  EXPECT_EQ(ibv_poll_cq(own.cq, 1, nullptr), -EINVAL);
  ibv_wc wc{};
  for (const int entries : {0, -1, INT_MIN}) EXPECT_EQ(ibv_poll_cq(own.cq, entries, &wc), 0);
}

}  // namespace

}  // namespace faultline::verbs::test::bad_input_test
