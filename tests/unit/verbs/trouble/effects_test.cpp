// SPDX-License-Identifier: BSD-3-Clause
// What a program gets of a scenario beside failed calls: completions with errors, events, wake-ups, devices
// that appear and vanish.
#include <algorithm>
#include <cerrno>
#include <thread>

#include <fcntl.h>

#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/verbs/fixture.hpp"
#include "tests/unit/verbs/trouble/play.hpp"

namespace faultline::verbs::test::effects_test {
namespace {

constexpr uint32_t kByScenario = 50;  // status::FailureCause

std::string once(const std::string& when, const std::string& action, const std::string& rest = "") {
  return "[[rule]]\nname = \"r\"\nwhen = { " + when + " }\ndo = { " + action + " }\n" + rest;
}

/// Takes the next asynchronous event and acknowledges it; -1: there is none.
int next_event(ibv_context* context) {
  fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
  ibv_async_event event;
  if (ibv_get_async_event(context, &event) != 0) return -1;
  ibv_ack_async_event(&event);
  return static_cast<int>(event.event_type);
}

/// Takes the next event of the channel and acknowledges it. False: there is none.
bool next_wake(const End& end) {
  fcntl(end.channel->fd, F_SETFL, O_NONBLOCK);
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  if (ibv_get_cq_event(end.channel, &cq, &user) != 0) return false;
  EXPECT_EQ(cq, end.cq);
  ibv_ack_cq_events(cq, 1);
  return true;
}

ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  EXPECT_EQ(ibv_query_qp(qp, &attributes, IBV_QP_STATE, nullptr), 0);
  return attributes.qp_state;
}

ibv_send_wr send_of(ibv_sge& sge, uint64_t wr_id) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

struct Received {
  const char* name;
  ibv_qp_type type;
  ibv_wc_status status;
  ibv_wc_status at_sender;
};

class Receives : public ::testing::TestWithParam<Received> {};

TEST_P(Receives, CompleteWithTheStatus) {
  const Received& wanted = GetParam();
  const Play play(once(R"(receive = "*", nth = 2)", "status = \"" + std::string(wanted.name) + "\""));
  const Pages pages(8192);
  End a("mem0", {.type = wanted.type}), b("mem1", {.type = wanted.type});
  connect(a, b);
  ibv_mr* const from = a.add_region(pages);
  ibv_mr* const to = b.add_region(pages);
  // As one chain: the second of three.
  std::array<ibv_sge, 3> sges{sge_of(to, 0, 100), sge_of(to, 100, 100), sge_of(to, 200, 100)};
  std::array<ibv_recv_wr, 3> wrs{};
  for (size_t i = 0; i < wrs.size(); ++i)
    wrs[i] = {i, i + 1 < wrs.size() ? &wrs[i + 1] : nullptr, &sges[i], 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(b.qp, wrs.data(), &bad), 0);
  ibv_sge sge = sge_of(from, 4096, 64);
  for (uint64_t id = 0; id < 2; ++id) {
    ASSERT_EQ(a.post_send(send_of(sge, id)), 0);
    const ibv_wc sent = completion(a, b);
    EXPECT_EQ(sent.status, id == 0 ? IBV_WC_SUCCESS : wanted.at_sender) << ibv_wc_status_str(sent.status);
  }
  const auto got = completions(b, a, 3);
  EXPECT_EQ(got[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(got[1].wr_id, 1U);
  EXPECT_EQ(got[1].status, wanted.status) << ibv_wc_status_str(got[1].status);
  EXPECT_EQ(got[1].vendor_err, kByScenario);
  EXPECT_EQ(got[2].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(state_of(b.qp), IBV_QPS_ERR);
  int event = next_event(b.context);
  if (event == IBV_EVENT_COMM_EST) event = next_event(b.context);
  EXPECT_EQ(event, IBV_EVENT_QP_FATAL);
  ASSERT_EQ(play.lines().size(), 1U);
  EXPECT_NE(play.lines()[0].find(R"("event":"receive","object":"mem1 qp 0","n":2)"), std::string::npos)
      << play.lines()[0];
}

constexpr std::array kReceived{
    Received{"IBV_WC_LOC_PROT_ERR", IBV_QPT_RC, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR},
    Received{"IBV_WC_LOC_LEN_ERR", IBV_QPT_RC, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR},
    Received{"IBV_WC_LOC_QP_OP_ERR", IBV_QPT_RC, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_OP_ERR},
    Received{"IBV_WC_FATAL_ERR", IBV_QPT_RC, IBV_WC_FATAL_ERR, IBV_WC_REM_OP_ERR},
    Received{"IBV_WC_GENERAL_ERR", IBV_QPT_RC, IBV_WC_GENERAL_ERR, IBV_WC_REM_OP_ERR},
    Received{"IBV_WC_GENERAL_ERR", IBV_QPT_UC, IBV_WC_GENERAL_ERR, IBV_WC_SUCCESS},
};
INSTANTIATE_TEST_SUITE_P(All, Receives, ::testing::ValuesIn(kReceived), [](const auto& one) {
  return std::string(one.param.name) + (one.param.type == IBV_QPT_RC ? "_RC" : "_UC");
});

/// Two QPs of an SRQ, connected to each other.
struct Shared {
  Shared() : a("mem0"), b("mem1") {
    ibv_srq_init_attr init{nullptr, {16, 1, 0}};
    srq = ibv_create_srq(b.pd, &init);
    ibv_destroy_qp(b.qp);
    ibv_qp_init_attr qp_init{};
    qp_init.send_cq = qp_init.recv_cq = b.cq;
    qp_init.srq = srq;
    qp_init.qp_type = IBV_QPT_RC;
    qp_init.cap = {16, 0, 1, 0, 0};
    b.qp = ibv_create_qp(b.pd, &qp_init);
    connect(a, b);
    from = a.add_region(pages);
    to = b.add_region(pages);
  }
  ~Shared() {
    EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
    b.qp = nullptr;
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
  }
  [[nodiscard]] int post_receive() const {
    ibv_sge sge = sge_of(to, 0, 100);
    ibv_recv_wr wr{7, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  [[nodiscard]] int send() const {
    ibv_sge sge = sge_of(from, 4096, 64);
    return a.post_send(send_of(sge, 1));
  }
  const Pages pages{8192};
  End a, b;
  ibv_srq* srq = nullptr;
  ibv_mr* from = nullptr;
  ibv_mr* to = nullptr;
};

TEST(Effects, AReceiveOfASharedQueueFails) {
  const Play play(once(R"(receive = "*", object = "mem1 srq 0")", R"(status = "IBV_WC_LOC_PROT_ERR")"));
  const Shared shared;
  ASSERT_EQ(shared.post_receive(), 0);
  ASSERT_EQ(shared.send(), 0);
  const ibv_wc got = completion(shared.b, shared.a);
  EXPECT_EQ(got.wr_id, 7U);
  EXPECT_EQ(got.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(completion(shared.a, shared.b).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(play.lines().size(), 1U);
}

TEST(Effects, TheLimitOfASharedQueueIsReached) {
  const Play play(once(R"(call = "ibv_post_srq_recv", nth = 2)", R"(event = "IBV_EVENT_SRQ_LIMIT_REACHED")"));
  const Shared shared;
  ASSERT_EQ(shared.post_receive(), 0);
  EXPECT_EQ(next_event(shared.b.context), -1);
  ASSERT_EQ(shared.post_receive(), 0);
  fcntl(shared.b.context->async_fd, F_SETFL, O_NONBLOCK);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(shared.b.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, shared.srq);
  ibv_ack_async_event(&event);
  EXPECT_EQ(next_event(shared.a.context), -1);
  ASSERT_EQ(play.lines().size(), 1U);
  EXPECT_NE(play.lines()[0].find(R"("object":"mem1 srq 0","n":2)"), std::string::npos) << play.lines()[0];
}

TEST(Effects, AQpOfASharedQueueReachesItsLastReceive) {
  const Play play(once(R"(send = "*")", R"(qp = "error")"));
  const Shared shared;
  ibv_sge sge = sge_of(shared.to, 0, 64);
  ASSERT_EQ(shared.b.post_send(send_of(sge, 1)), 0);
  EXPECT_EQ(completion(shared.b, shared.a).status, IBV_WC_WR_FLUSH_ERR);
  std::vector<int> events;
  for (int event = next_event(shared.b.context); event >= 0; event = next_event(shared.b.context))
    events.push_back(event);
  EXPECT_TRUE(std::ranges::count(events, IBV_EVENT_QP_LAST_WQE_REACHED) == 1) << events.size();
  EXPECT_TRUE(std::ranges::count(events, IBV_EVENT_QP_FATAL) == 1) << events.size();
}

TEST(Effects, AnEventOfACompletionQueueIsRaisedAlone) {
  const Play play(once(R"(call = "ibv_req_notify_cq")", R"(event = "IBV_EVENT_CQ_ERR")"));
  const End end("mem0");
  ASSERT_EQ(ibv_req_notify_cq(end.cq, 0), 0);
  fcntl(end.context->async_fd, F_SETFL, O_NONBLOCK);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(end.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, end.cq);
  ibv_ack_async_event(&event);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(end.cq, 1, &wc), 0) << "the queue still works";
}

TEST(Effects, ACompletionQueueOverflows) {
  for (const int cores : {1, 2}) {
    faults().cores = cores;
    const Play play(once(R"(send = "*", nth = 2)", R"(cq = "overflow")"));
    const Pages pages(8192);
    End a("mem0"), b("mem1");
    faults().cores = 1;
    connect(a, b);
    // One more QP of the queue, and one of another queue.
    ibv_qp* const first = a.qp;
    a.make_qp({});
    ASSERT_EQ(a.to_init(), 0);
    std::swap(a.qp, const_cast<ibv_qp*&>(first));
    const End other("mem0");
    ASSERT_EQ(other.to_init(), 0);
    ibv_mr* const from = a.add_region(pages);
    ibv_mr* const to = b.add_region(pages);
    for (uint64_t id = 0; id < 3; ++id) ASSERT_EQ(b.post_receive(id, {sge_of(to, 0, 100)}), 0);
    ibv_sge sge = sge_of(from, 4096, 64);
    ASSERT_EQ(a.post_send(send_of(sge, 0)), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
    EXPECT_EQ(next_event(a.context), -1);
    ASSERT_EQ(state_of(a.qp), IBV_QPS_RTS);
    ibv_send_wr wr = send_of(sge, 1);
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(a.qp, &wr, &bad), 0) << "flushed, as after any failure";
    std::vector<int> events;
    for (int event = next_event(a.context); event >= 0; event = next_event(a.context))
      events.push_back(event);
    EXPECT_EQ(std::ranges::count(events, IBV_EVENT_CQ_ERR), 1);
    EXPECT_EQ(std::ranges::count(events, IBV_EVENT_QP_FATAL), 2);
    EXPECT_EQ(state_of(a.qp), IBV_QPS_ERR);
    EXPECT_EQ(state_of(first), IBV_QPS_ERR);
    EXPECT_EQ(state_of(other.qp), IBV_QPS_INIT);
    EXPECT_EQ(next_event(other.context), -1);
    ibv_wc wc;
    int got = 0;
    while ((got = ibv_poll_cq(a.cq, 1, &wc)) > 0) EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(got, -1) << "ibv_poll_cq(3): the queue cannot be used";
    EXPECT_EQ(ibv_destroy_qp(first), 0);
  }
}

TEST(Effects, AChannelWakesWithoutACompletion) {
  const Play play(once(R"(call = "ibv_req_notify_cq", nth = 2)", R"(wake = "spurious")"));
  const End end("mem0", {.with_channel = true});
  ASSERT_EQ(ibv_req_notify_cq(end.cq, 0), 0);
  EXPECT_FALSE(next_wake(end));
  ASSERT_EQ(ibv_req_notify_cq(end.cq, 0), 0);
  EXPECT_TRUE(next_wake(end));
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(end.cq, 1, &wc), 0);
  EXPECT_FALSE(next_wake(end));
}

TEST(Effects, AWakeUpIsLateAndStandsForSeveralCompletions) {
  const Play play(once(R"(call = "ibv_req_notify_cq")", R"(wake = "late", delay_us = 20000)"));
  const Pages pages(8192);
  End a("mem0"), b("mem1", {.with_channel = true});
  connect(a, b);
  ibv_mr* const from = a.add_region(pages);
  ibv_mr* const to = b.add_region(pages);
  ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
  ibv_sge sge = sge_of(from, 4096, 64);
  for (uint64_t id = 0; id < 2; ++id) {
    ASSERT_EQ(b.post_receive(id, {sge_of(to, 0, 100)}), 0);
    ASSERT_EQ(a.post_send(send_of(sge, id)), 0);
    EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  }
  const auto give_up = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  bool awake = false;
  while (!awake && std::chrono::steady_clock::now() < give_up) {
    faultline_progress(b.context);
    awake = next_wake(b);
  }
  EXPECT_TRUE(awake);
  EXPECT_FALSE(next_wake(b)) << "one event";
  EXPECT_EQ(completions(b, a, 2).size(), 2U);
}

ibv_port_state port_of(ibv_context* context) {
  ibv_port_attr attributes{};
  EXPECT_EQ(query_port(context, 1, &attributes, sizeof attributes), 0);
  return attributes.state;
}

TEST(Effects, APortIsDownFromTheStartUntilARuleEndsIt) {
  const Play play(once(R"(call = "ibv_open_device", device = "mem0")", R"(link = "down")") +
                  once(R"(call = "ibv_create_cq", device = "mem0", nth = 2)", R"(link = "up")"));
  const End end("mem0");
  const End other("mem1");
  EXPECT_EQ(port_of(end.context), IBV_PORT_DOWN);
  EXPECT_EQ(port_of(other.context), IBV_PORT_ACTIVE);
  ibv_cq* const cq = ibv_create_cq(end.context, 4, nullptr, nullptr, 0);
  EXPECT_EQ(port_of(end.context), IBV_PORT_ACTIVE);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

std::string listed() {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  std::string names;
  for (int i = 0; i < count; ++i) names += std::string(ibv_get_device_name(list[i])) + " ";
  EXPECT_EQ(list[count], nullptr);
  ibv_free_device_list(list);
  return names;
}

TEST(Effects, ADeviceAppearsLate) {
  const Play play(once(R"(list = "*", device = "mem0")", R"(device = "absent")", "times = 2\n"));
  EXPECT_EQ(listed(), "mem1 ");
  EXPECT_EQ(listed(), "mem1 ");
  EXPECT_EQ(listed(), "mem0 mem1 ");
  EXPECT_EQ(play.lines().size(), 2U);
}

TEST(Effects, ADeviceAppearsOnceARuleHasDecided) {
  const Play play(
      once(R"(list = "*", device = "mem0", before = "other")", R"(device = "absent")", "times = 0\n") +
      "[[rule]]\nname = \"other\"\nwhen = { call = \"ibv_open_device\" }\ndo = { link = \"up\" }\n");
  EXPECT_EQ(listed(), "mem1 ");
  EXPECT_EQ(listed(), "mem1 ");
  ibv_context* const context = open("mem1");
  EXPECT_EQ(listed(), "mem0 mem1 ");
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(Effects, ADeviceVanishes) {
  const Play play(once(R"(send = "*")", R"(device = "gone")"));
  const Pages pages(8192);
  End a("mem0"), b("mem1");
  connect(a, b);
  ibv_mr* const from = a.add_region(pages);
  ibv_sge sge = sge_of(from, 0, 64);
  ASSERT_EQ(a.post_receive(3, {sge}), 0);
  ASSERT_EQ(a.post_send(send_of(sge, 1)), 0) << "the request itself proceeds";
  const auto flushed = completions(a, b, 2);
  EXPECT_EQ(std::ranges::count(flushed, IBV_WC_WR_FLUSH_ERR, &ibv_wc::status), 2);
  EXPECT_EQ(next_event(a.context), IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(next_event(a.context), -1);
  // Calls fail, but the other device works.
  EXPECT_EQ(a.post_send(send_of(sge, 2)), EIO);
  EXPECT_EQ(a.post_receive(4, {sge}), EIO);
  EXPECT_EQ(ibv_alloc_pd(a.context), nullptr);
  EXPECT_EQ(errno, EIO);
  ibv_device_attr device{};
  EXPECT_EQ(ibv_query_device(a.context, &device), EIO);
  EXPECT_EQ(ibv_query_device(b.context, &device), 0);
  EXPECT_EQ(ibv_open_device(a.context->device), nullptr);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(next_event(b.context), -1);
  EXPECT_EQ(listed(), "mem1 ");
  EXPECT_EQ(play.lines().size(), 1U);
  // End releases all objects, and expects success.
}

TEST(Effects, ADeviceThatVanishesFailsTheQpsOfEachCore) {
  faults().cores = 2;
  const Play play(once(R"(call = "ibv_query_port")", R"(device = "gone")"));
  const End first("mem0"), second("mem0");
  faults().cores = 1;
  ASSERT_EQ(first.to_init(), 0);
  ASSERT_EQ(second.to_init(), 0);
  ASSERT_NE(first.qp->qp_num % 2, second.qp->qp_num % 2) << "on different cores";
  EXPECT_EQ(port_of(first.context), IBV_PORT_DOWN);
  for (const End* end : {&first, &second})
    for (int turns = 0; turns < 3; ++turns) faultline_progress(end->context);
  for (const End* end : {&first, &second}) {
    EXPECT_EQ(next_event(end->context), IBV_EVENT_DEVICE_FATAL);
    EXPECT_EQ(next_event(end->context), -1);
    EXPECT_EQ(transport::state_of(qp_of(end->qp).transport_qp), transport::QpState::err);
  }
}

TEST(Conditions, AThreadIsNamedByTheOrderOfFirstCalls) {
  // The number of this thread depends on the tests before: threads that begin now have the next ones.
  const Play none(once(R"(call = "ibv_get_device_list", nth = 1000)", R"(errno = "EIO")"));
  static_cast<void>(listed());
  uint32_t first = 0;
  std::thread([&first] { first = thread_number(); }).join();
  const Play play(once("call = \"ibv_alloc_pd\", thread = " + std::to_string(first + 2),
                       R"(errno = "ENOMEM")", "times = 0\n"));
  ibv_context* const context = open("mem0");
  const auto allocate = [context] {
    ibv_pd* const pd = ibv_alloc_pd(context);
    if (pd != nullptr) ibv_dealloc_pd(pd);
    return pd != nullptr;
  };
  std::vector<bool> got{allocate()};
  for (int i = 0; i < 3; ++i) std::thread([&] { got.push_back(allocate()); }).join();
  EXPECT_EQ(got, (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(Conditions, ARuleWaitsForAnEventThatTheProgramGets) {
  const Play play(once(R"(call = "ibv_query_port")", R"(event = "IBV_EVENT_GID_CHANGE")") +
                  once(R"(event = "IBV_EVENT_GID_*")", R"(link = "down")"));
  const End end("mem0");
  EXPECT_EQ(port_of(end.context), IBV_PORT_ACTIVE);
  faultline_progress(end.context);
  EXPECT_EQ(port_of(end.context), IBV_PORT_ACTIVE) << "raised, but not delivered";
  ASSERT_GE(next_event(end.context), 0);
  EXPECT_EQ(port_of(end.context), IBV_PORT_DOWN);
  ASSERT_EQ(play.lines().size(), 2U);
}

}  // namespace
}  // namespace faultline::verbs::test::effects_test
