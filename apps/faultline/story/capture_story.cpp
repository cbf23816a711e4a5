// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/capture_story.hpp"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "apps/faultline/story/capture_file.hpp"
#include "apps/faultline/story/captured_packet.hpp"
#include "apps/faultline/story/flows.hpp"

namespace faultline::story {
namespace {

void set(Event& event, EventFlag flag, bool value) {
  if (value) event.flags = static_cast<uint16_t>(event.flags | flag);
}

Event event_of(const wire::Packet& packet) {
  Event event;
  event.code = static_cast<uint8_t>(packet.bth.opcode);
  event.psn = static_cast<int32_t>(packet.bth.psn.value());
  event.length_bytes = packet.payload_bytes;
  set(event, kResponse, !packet.info->request && packet.info->service != wire::Service::cnp);
  set(event, kAckRequest, packet.bth.ack_request);
  set(event, kMarked, packet.ecn == 3);
  set(event, kPageFault, packet.bth.page_fault);
  set(event, kPageReady, packet.bth.page_ready);
  set(event, kSolicited, packet.bth.solicited);
  if (packet.info->has(wire::kAeth)) {
    event.syndrome = packet.aeth().syndrome;
    event.argument = packet.aeth().msn;
  } else if (packet.info->operation == wire::Operation::read_request) {
    event.argument = packet.reth().length_bytes;
  }
  // The number of packets that the responder holds after the missing one.
  if (packet.info->has(wire::kSackEth)) {
    const wire::SackEth sack = packet.sack_eth();
    for (uint32_t i = 0; i < wire::SackEth::kPackets; ++i) event.argument += sack.has(i) ? 1 : 0;
  }
  return event;
}

}  // namespace

std::string read_capture_story(std::span<const uint8_t> file, Story& story) {
  PacketReader reader;
  Flows flows;
  std::vector<FlowIndex> flow_of;  // of each event
  const CaptureEnd end = read_capture(file, [&](const CapturedFrame& frame) {
    wire::Packet packet;
    switch (reader.read(frame, packet)) {
      case FrameContent::other:
        ++story.other_frames;
        return;
      case FrameContent::invalid_roce:
        ++story.invalid_packets;
        return;
      case FrameContent::roce:
        break;
    }
    Event event = event_of(packet);
    event.time_ns = frame.time_ns;
    flow_of.push_back(flows.add(packet));
    story.events.push_back(event);
  });
  if (!end.error.empty() && (!end.truncated || flow_of.empty())) return end.error;
  if (end.truncated) story.notes.push_back(end.error + "; the packets before it are shown");

  const std::vector<Flows::Side> sides = flows.pair(story.connections);
  for (size_t i = 0; i < story.events.size(); ++i) {
    story.events[i].connection = sides[flow_of[i]].connection;
    set(story.events[i], kOfSecondEnd, sides[flow_of[i]].of_second_end);
  }
  // Several queues of a NIC leave packets slightly out of order.
  std::ranges::stable_sort(story.events, {}, &Event::time_ns);
  if (!story.events.empty()) story.start_realtime_ns = story.events.front().time_ns;
  for (Event& event : story.events) event.time_ns -= story.start_realtime_ns;
  return "";
}

}  // namespace faultline::story
