// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous events, and completion queues that overrun.
#include <thread>

#include <fcntl.h>
#include <poll.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::event_test {

namespace {

void set_nonblocking(const ibv_context* context) {
  ASSERT_EQ(fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK), 0);
}

bool readable(const ibv_context* context) {
  pollfd fd{context->async_fd, POLLIN, 0};
  return poll(&fd, 1, 0) == 1;
}

/// Makes `b` raise IBV_EVENT_QP_ACCESS_ERR.
void break_access(const End& a, const End& b, const ibv_mr* local) {
  ibv_sge sge = sge_of(local, 0, 8);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.rkey = 0xbad00;
  ASSERT_EQ(a.post_send(wr), 0);
  EXPECT_EQ(completion(a, b).status, IBV_WC_REM_ACCESS_ERR);
}

TEST(AsyncEvents, TheDescriptorHonoursNonblockAndPoll) {
  const Pages pages(4096);
  End a("mem0");
  const End b("mem1");
  connect(a, b);
  set_nonblocking(b.context);
  ibv_async_event event{};
  while (ibv_get_async_event(b.context, &event) == 0) ibv_ack_async_event(&event);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(readable(b.context));
  break_access(a, b, a.add_region(pages));
  EXPECT_TRUE(readable(b.context));
  ibv_event_type last = IBV_EVENT_CQ_ERR;
  while (ibv_get_async_event(b.context, &event) == 0) {
    last = event.event_type;
    EXPECT_EQ(event.element.qp, b.qp);
    ibv_ack_async_event(&event);
  }
  EXPECT_EQ(last, IBV_EVENT_QP_ACCESS_ERR);
}

TEST(AsyncEvents, DestroyTakesUnreadEventsAlong) {
  const Pages pages(4096);
  End a("mem0");
  End b("mem1");
  connect(a, b);
  break_access(a, b, a.add_region(pages));
  set_nonblocking(b.context);
  EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
  b.qp = nullptr;
  ibv_async_event event{};
  EXPECT_EQ(ibv_get_async_event(b.context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(AsyncEvents, DestroyWaitsUntilAnEventIsAcknowledged) {
  const Pages pages(4096);
  End a("mem0");
  End b("mem1");
  connect(a, b);
  break_access(a, b, a.add_region(pages));
  ibv_async_event event{};
  do {
    if (event.element.qp != nullptr) ibv_ack_async_event(&event);
    ASSERT_EQ(ibv_get_async_event(b.context, &event), 0);
  } while (event.event_type != IBV_EVENT_QP_ACCESS_ERR);
  std::atomic<bool> acknowledged{false};
  std::thread reader([&] {
    std::this_thread::yield();
    acknowledged = true;
    ibv_ack_async_event(&event);
  });
  EXPECT_EQ(ibv_destroy_qp(b.qp), 0);
  EXPECT_TRUE(acknowledged);
  b.qp = nullptr;
  reader.join();
}

TEST(DeviceEvents, ReachEveryContextAndThePortsLastTellsItsState) {
  const End a("mem0");
  const End second("mem0");
  const End other("mem1");
  using transport::AsyncEvent;
  for (const AsyncEvent event : {AsyncEvent::port_error, AsyncEvent::port_active, AsyncEvent::port_error})
    raise_device_event("mem0", event);
  for (const End* end : {&a, &second}) {
    set_nonblocking(end->context);
    std::vector<ibv_event_type> seen;
    ibv_async_event event{};
    while (ibv_get_async_event(end->context, &event) == 0) {
      seen.push_back(event.event_type);
      EXPECT_EQ(event.element.port_num, 1);
      ibv_ack_async_event(&event);
    }
    EXPECT_EQ(seen, (std::vector<ibv_event_type>{IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR}));
    EXPECT_FALSE(readable(end->context));
  }
  EXPECT_FALSE(readable(other.context)) << "another device's";
  raise_device_event("mem1", AsyncEvent::device_fatal);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(other.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);
}

TEST(DeviceEvents, ReachWhoWaitsForNothingElse) {
  ibv_context* const context = open("mem0");
  ASSERT_NE(context, nullptr);
  ASSERT_EQ(running_devices(), 0);
  // Raised repeatedly: the device may run before the context receives its events.
  std::atomic<bool> heard{false};
  std::thread port([&heard] {
    while (!heard) {
      if (running_devices() != 0) raise_device_event("mem0", transport::AsyncEvent::port_error);
      std::this_thread::yield();
    }
  });
  ibv_async_event event{};
  EXPECT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  heard = true;
  ibv_ack_async_event(&event);
  port.join();
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(CqOverrun, RaisesAnEventAndEndsTheQueuesUse) {
  const Pages pages(4096);
  EndOptions small;
  small.cqe = 2;
  End a("mem0", small);
  End b("mem1");
  ibv_mr* const local = a.add_region(pages);
  ibv_mr* const remote = b.add_region(pages);
  connect(a, b);
  ibv_sge sge = sge_of(local, 0, 8);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {pages.address(), remote->rkey};
  for (int i = 0; i < 16; ++i) ASSERT_EQ(a.post_send(wr), 0);
  set_nonblocking(a.context);
  ibv_async_event event{};
  int error = -1;
  for (int turn = 0; turn < 100000 && error != 0; ++turn) {
    faultline_progress(a.context);
    faultline_progress(b.context);
    error = ibv_get_async_event(a.context, &event);
    if (error == 0 && event.event_type != IBV_EVENT_CQ_ERR) {
      ibv_ack_async_event(&event);
      error = -1;
    }
  }
  ASSERT_EQ(error, 0);
  EXPECT_EQ(event.element.cq, a.cq);
  ibv_ack_async_event(&event);
  ibv_wc wc{};
  int got = 1;
  for (int i = 0; i < 100 && got >= 0; ++i) got = ibv_poll_cq(a.cq, 1, &wc);
  EXPECT_LT(got, 0);
}

}  // namespace

}  // namespace faultline::verbs::test::event_test
