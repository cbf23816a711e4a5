// SPDX-License-Identifier: BSD-3-Clause
// RDMA netlink: requests of any bytes, answers of a device with objects of two processes, and the descriptor.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stack/abi/netlink/answers.hpp"
#include "stack/abi/netlink/socket.hpp"
#include "stack/abi/sockets/netlink_sockets.hpp"
#include "stack/status/segment_writer.hpp"
#include "stack/verbs/objects/counter_list.hpp"
#include "tests/unit/verbs/memory_backend.hpp"

namespace faultline::abi {
namespace {

constexpr uint32_t kSequence = 77, kPort = 4242;
constexpr size_t kReaderBytes = 4096;  // libmnl's buffer

uint16_t nldev(uint16_t command) {
  return static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
}

NetlinkMessage request(uint16_t command, uint16_t flags) {
  return {nldev(command), static_cast<uint16_t>(NLM_F_REQUEST | flags), kSequence, 0};
}
NetlinkMessage about_device(uint16_t command, uint16_t flags = NLM_F_ACK, uint32_t index = 0) {
  NetlinkMessage message = request(command, flags);
  message.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
  return message;
}

struct Attribute {
  uint16_t type;
  std::span<const uint8_t> bytes;

  [[nodiscard]] uint64_t number() const {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
    return value;
  }
  [[nodiscard]] std::string text() const { return reinterpret_cast<const char*>(bytes.data()); }
};

/// Reads attributes by RFC 3549 (2.3.3), independently of the product's reader.
std::vector<Attribute> attributes_of(std::span<const uint8_t> bytes) {
  std::vector<Attribute> found;
  while (!bytes.empty()) {
    nlattr header;
    if (bytes.size() < sizeof header) {
      ADD_FAILURE() << "attribute header cut off";
      break;
    }
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.nla_len < sizeof header || header.nla_len > bytes.size()) {
      ADD_FAILURE() << "attribute of " << header.nla_len << " bytes in " << bytes.size();
      break;
    }
    found.push_back({header.nla_type, bytes.first(header.nla_len).subspan(sizeof header)});
    bytes = bytes.subspan(std::min<size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
  }
  return found;
}

nlmsghdr header_of(const NetlinkBytes& datagram) {
  nlmsghdr header;
  std::memcpy(&header, datagram.data(), sizeof header);
  return header;
}
std::vector<Attribute> attributes_of(const NetlinkBytes& datagram) {
  return attributes_of(std::span(datagram).subspan(sizeof(nlmsghdr)));
}
std::optional<Attribute> find(const std::vector<Attribute>& attributes, uint16_t type) {
  for (const Attribute& attribute : attributes)
    if (attribute.type == type) return attribute;
  return std::nullopt;
}
uint64_t number_of(const std::vector<Attribute>& attributes, uint16_t type) {
  const auto found = find(attributes, type);
  if (!found) ADD_FAILURE() << "no attribute " << type;
  return found ? found->number() : ~uint64_t{0};
}
int error_of(const NetlinkBytes& datagram) {
  int error = 1;
  EXPECT_EQ(header_of(datagram).nlmsg_type, NLMSG_ERROR);
  std::memcpy(&error, datagram.data() + sizeof(nlmsghdr), sizeof error);
  return error;
}

class Netlink : public ::testing::Test {
 protected:
  void SetUp() override {
    description_.name =
        "nl" + std::to_string(getpid()) + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    device_.description = &description_;
    device_.guid_be = htobe64(0x0102030405060708);
    device_.verbs_name = "uverbs0";
    device_.version = "1.2.3";
    device_.port.state = IBV_PORT_ACTIVE;
    device_.port.phys_state = 5;
    status::DeviceFacts facts;
    facts.name = description_.name;
    std::string error;
    segment_ = status::SegmentWriter::create(facts, error);
    ASSERT_NE(segment_, nullptr) << error;
  }

  [[nodiscard]] std::vector<NetlinkBytes> answer(std::span<const uint8_t> bytes,
                                                 NetlinkAsker asker = {kPort}) {
    const NetlinkSources sources{
        {&device_, 1},
        [this](const std::string& device) {
          EXPECT_EQ(device, description_.name);
          std::vector<std::unique_ptr<status::SegmentReader>> all;
          // Twice the same: QPNs and handles are not unique among processes.
          for (int i = 0; i < 2; ++i) all.push_back(status::SegmentReader::open(segment_->path()));
          return all;
        },
        [](const std::string&) { return std::vector<uint64_t>(verbs::counter_texts().size(), 7); }};
    auto answers = answer_netlink(bytes, asker, sources);
    for (const NetlinkBytes& datagram : answers) {
      EXPECT_EQ(header_of(datagram).nlmsg_len, datagram.size());
      EXPECT_EQ(header_of(datagram).nlmsg_seq, kSequence);
      EXPECT_EQ(header_of(datagram).nlmsg_pid, kPort);
      EXPECT_LE(datagram.size(), kReaderBytes);
    }
    return answers;
  }
  [[nodiscard]] std::vector<NetlinkBytes> answer(NetlinkMessage message, NetlinkAsker asker = {kPort}) {
    return answer(message.finish(), asker);
  }
  void add_qps(uint32_t count) {
    for (uint32_t qpn = 1; qpn <= count; ++qpn) {
      status::QpRow row;
      row.qpn = qpn;
      row.type = IBV_QPT_RC;
      row.pd_handle = 5;
      row.send_cq_handle = row.receive_cq_handle = 9;
      row.live.state = qpn % 2 == 0 ? IBV_QPS_RTS : IBV_QPS_RESET;
      row.live.peer_qpn = qpn + 1000;
      row.live.counters.tx_packets = qpn * 10;
      ASSERT_NE(segment_->add(row), status::kNoRow);
    }
  }

  verbs::DeviceDescription description_;
  DeviceFacts device_;
  std::unique_ptr<status::SegmentWriter> segment_;
};

TEST_F(Netlink, DescribesTheDevice) {
  const auto answers = answer(request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP | NLM_F_ACK));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(header_of(answers[0]).nlmsg_type, nldev(RDMA_NLDEV_CMD_GET));
  EXPECT_EQ(header_of(answers[0]).nlmsg_flags, NLM_F_MULTI);
  const auto attributes = attributes_of(answers[0]);
  EXPECT_EQ(find(attributes, RDMA_NLDEV_ATTR_DEV_NAME)->text(), description_.name);
  EXPECT_EQ(find(attributes, RDMA_NLDEV_ATTR_FW_VERSION)->text(), "1.2.3");
  EXPECT_EQ(number_of(attributes, RDMA_NLDEV_ATTR_NODE_GUID), 0x0102030405060708U);
  EXPECT_EQ(number_of(attributes, RDMA_NLDEV_ATTR_PORT_INDEX), 1U);
  EXPECT_EQ(header_of(answers[1]).nlmsg_type, NLMSG_DONE);
}

TEST_F(Netlink, AcknowledgesWhatIsNoDump) {
  NetlinkMessage message = about_device(RDMA_NLDEV_CMD_PORT_GET);
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
  const auto answers = answer(std::move(message));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(header_of(answers[0]).nlmsg_flags, 0);
  EXPECT_EQ(number_of(attributes_of(answers[0]), RDMA_NLDEV_ATTR_PORT_STATE), IBV_PORT_ACTIVE);
  EXPECT_EQ(error_of(answers[1]), 0);
}

TEST_F(Netlink, RefusesWithTheReason) {
  const auto error_for = [this](NetlinkMessage message) {
    const auto answers = answer(std::move(message), {kPort, true, true});
    EXPECT_EQ(answers.size(), 1U);
    return answers.empty() ? 0 : error_of(answers[0]);
  };
  EXPECT_EQ(error_for(about_device(RDMA_NLDEV_CMD_SET)), -EOPNOTSUPP);
  EXPECT_EQ(error_for(about_device(RDMA_NLDEV_CMD_STAT_SET)), -EOPNOTSUPP);
  EXPECT_EQ(error_for(about_device(8)), -EINVAL);     // a number that Linux leaves free
  EXPECT_EQ(error_for(about_device(1000)), -EINVAL);  // beyond all commands
  EXPECT_EQ(error_for(about_device(RDMA_NLDEV_CMD_GET, NLM_F_ACK, 1)), -EINVAL);  // no such device
  EXPECT_EQ(error_for(request(RDMA_NLDEV_CMD_RES_GET, NLM_F_ACK)), -EINVAL);      // no device named
  EXPECT_EQ(error_for(about_device(RDMA_NLDEV_CMD_PORT_GET)), -EINVAL);           // no port named
  NetlinkMessage no_qp = about_device(RDMA_NLDEV_CMD_RES_QP_GET);
  no_qp.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, 3);
  EXPECT_EQ(error_for(std::move(no_qp)), -ENOENT);

  const auto refused = answer(about_device(RDMA_NLDEV_CMD_SET), {kPort, true, true});
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(header_of(refused[0]).nlmsg_flags, NLM_F_CAPPED | NLM_F_ACK_TLVS);
  const auto reasons = attributes_of(std::span(refused[0]).subspan(sizeof(nlmsghdr) + sizeof(nlmsgerr)));
  ASSERT_TRUE(find(reasons, NLMSGERR_ATTR_MSG));
  EXPECT_EQ(find(reasons, NLMSGERR_ATTR_MSG)->text(), "Faultline's devices do not have this command");
}

TEST_F(Netlink, ListsManyQpsInSmallDatagrams) {
  constexpr uint32_t kQps = 300;
  add_qps(kQps);
  const auto answers = answer(about_device(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP));
  ASSERT_GT(answers.size(), 3U);
  EXPECT_EQ(header_of(answers.back()).nlmsg_type, NLMSG_DONE);
  std::map<uint64_t, int> seen;
  for (size_t i = 0; i + 1 < answers.size(); ++i) {
    const auto table = find(attributes_of(answers[i]), RDMA_NLDEV_ATTR_RES_QP);
    ASSERT_TRUE(table);
    for (const Attribute& entry : attributes_of(table->bytes)) {
      EXPECT_EQ(entry.type, RDMA_NLDEV_ATTR_RES_QP_ENTRY);
      const auto qp = attributes_of(entry.bytes);
      const uint64_t qpn = number_of(qp, RDMA_NLDEV_ATTR_RES_LQPN);
      ++seen[qpn];
      EXPECT_EQ(number_of(qp, RDMA_NLDEV_ATTR_RES_RQPN), qpn + 1000);
      EXPECT_EQ(number_of(qp, RDMA_NLDEV_ATTR_RES_PID), static_cast<uint64_t>(getpid()));
      EXPECT_EQ(number_of(qp, RDMA_NLDEV_ATTR_RES_PDN), 5U);
      EXPECT_EQ(find(qp, RDMA_NLDEV_ATTR_PORT_INDEX).has_value(), qpn % 2 == 0) << "RESET: no port yet";
    }
  }
  EXPECT_EQ(seen.size(), kQps);
  for (const auto& [qpn, count] : seen) EXPECT_EQ(count, 2) << qpn;
}

TEST_F(Netlink, FindsObjectsByNumberAndPort) {
  add_qps(4);
  NetlinkMessage one = about_device(RDMA_NLDEV_CMD_RES_QP_GET);
  one.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, 2);
  const auto found = answer(std::move(one));
  ASSERT_EQ(found.size(), 3U) << "one of each process, and the acknowledgement";
  EXPECT_EQ(number_of(attributes_of(found[1]), RDMA_NLDEV_ATTR_RES_LQPN), 2U);

  NetlinkMessage of_port = about_device(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP);
  of_port.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
  const auto answers = answer(std::move(of_port));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(attributes_of(find(attributes_of(answers[0]), RDMA_NLDEV_ATTR_RES_QP)->bytes).size(), 4U)
      << "QPs 2 and 4 of both processes";
}

TEST_F(Netlink, CountsUsersAndObjects) {
  add_qps(3);
  ASSERT_NE(segment_->add(
                status::CqRow{.created_ns = 1, .handle = 9, .entries = 64, .has_channel = 0, .padding = 0}),
            status::kNoRow);
  ASSERT_NE(segment_->add(status::PdRow{.created_ns = 1, .handle = 5, .padding = 0}), status::kNoRow);
  status::MrRow region;
  region.length_bytes = 1 << 20;
  region.lkey = region.rkey = 0x1234;
  region.pd_handle = 5;
  region.page_faults = 11;
  ASSERT_NE(segment_->add(region), status::kNoRow);

  const auto entry_of = [this](uint16_t command, uint16_t table) {
    static std::vector<NetlinkBytes> answers;  // the attributes refer to it
    answers = answer(about_device(command, NLM_F_DUMP));
    return attributes_of(attributes_of(find(attributes_of(answers.at(0)), table)->bytes).at(0).bytes);
  };
  EXPECT_EQ(
      number_of(entry_of(RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ), RDMA_NLDEV_ATTR_RES_USECNT), 6U)
      << "as send and as receive CQ of three QPs";
  EXPECT_EQ(
      number_of(entry_of(RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD), RDMA_NLDEV_ATTR_RES_USECNT), 4U)
      << "three QPs and a region";
  const auto mr = entry_of(RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR);
  EXPECT_EQ(number_of(mr, RDMA_NLDEV_ATTR_RES_MRN), 0x12U);
  EXPECT_EQ(number_of(mr, RDMA_NLDEV_ATTR_RES_MRLEN), 1U << 20);

  const auto summary = answer(about_device(RDMA_NLDEV_CMD_RES_GET));
  std::map<std::string, uint64_t> counts;
  for (const Attribute& entry :
       attributes_of(find(attributes_of(summary.at(0)), RDMA_NLDEV_ATTR_RES_SUMMARY)->bytes)) {
    const auto one = attributes_of(entry.bytes);
    counts[find(one, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME)->text()] =
        number_of(one, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR);
  }
  const std::map<std::string, uint64_t> expected{{"pd", 2}, {"cq", 2},  {"qp", 6}, {"cm_id", 0},
                                                 {"mr", 2}, {"ctx", 2}, {"srq", 0}};
  EXPECT_EQ(counts, expected);
}

std::map<std::string, uint64_t> counters_in(std::span<const uint8_t> table) {
  std::map<std::string, uint64_t> counters;
  for (const Attribute& entry : attributes_of(table)) {
    const auto one = attributes_of(entry.bytes);
    counters[find(one, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME)->text()] =
        number_of(one, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE);
  }
  return counters;
}

TEST_F(Netlink, HasCountersOfPortQpAndRegion) {
  NetlinkMessage of_port = about_device(RDMA_NLDEV_CMD_STAT_GET);
  of_port.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
  const auto port = answer(std::move(of_port));
  ASSERT_EQ(port.size(), 2U);
  auto counters = counters_in(find(attributes_of(port[0]), RDMA_NLDEV_ATTR_STAT_HWCOUNTERS)->bytes);
  EXPECT_EQ(counters["sent_pkts"], 7U);
  EXPECT_EQ(counters["out_of_sequence"], 7U);

  add_qps(1);
  NetlinkMessage of_qps = about_device(RDMA_NLDEV_CMD_STAT_GET, NLM_F_DUMP);
  of_qps.put_u32(RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_QP);
  const auto qps = answer(std::move(of_qps));
  const auto table = find(attributes_of(qps.at(0)), RDMA_NLDEV_ATTR_STAT_COUNTER);
  ASSERT_TRUE(table);
  const auto qp = attributes_of(attributes_of(table->bytes).at(0).bytes);
  EXPECT_EQ(number_of(qp, RDMA_NLDEV_ATTR_STAT_COUNTER_ID), 1U);
  EXPECT_EQ(counters_in(find(qp, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS)->bytes)["tx_packets"], 10U);
}

TEST_F(Netlink, SurvivesEveryTruncation) {
  add_qps(2);
  NetlinkMessage message = about_device(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_ACK);
  message.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, 2);
  message.put_text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "rdma_cm");
  const NetlinkBytes whole = message.finish();
  ASSERT_EQ(answer(whole).size(), 3U);
  for (size_t length = 0; length < whole.size(); ++length) {
    // With the length that the header has: the message is not whole. It is copied so that a read beyond it is
    // one beyond an allocation.
    EXPECT_TRUE(answer(NetlinkBytes(whole.begin(), whole.begin() + static_cast<long>(length))).empty())
        << length;
    // With the length that there is: an attribute is cut off.
    NetlinkBytes cut(whole.begin(), whole.begin() + static_cast<long>(length));
    if (length < sizeof(nlmsghdr)) continue;
    const auto own = static_cast<uint32_t>(length);
    std::memcpy(cut.data(), &own, sizeof own);
    EXPECT_FALSE(answer(cut).empty()) << length;
  }
}

TEST_F(Netlink, SurvivesAnyBytes) {
  std::mt19937 random(1);
  NetlinkMessage message = about_device(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_ACK);
  message.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, 2);
  const NetlinkBytes whole = message.finish();
  for (int i = 0; i < 20'000; ++i) {
    NetlinkBytes changed = whole;
    for (int changes = 0; changes < 3; ++changes) {
      // The sequence number stays, which answer() compares.
      size_t at = random() % changed.size();
      if (at >= offsetof(nlmsghdr, nlmsg_seq) && at < sizeof(nlmsghdr)) at = 4;
      changed[at] = static_cast<uint8_t>(random());
    }
    static_cast<void>(answer(changed));
  }
}

TEST_F(Netlink, AnswersEachMessageOfADatagram) {
  NetlinkBytes both = about_device(RDMA_NLDEV_CMD_SYS_GET).finish();
  const NetlinkBytes second = about_device(RDMA_NLDEV_CMD_SET).finish();
  both.insert(both.end(), second.begin(), second.end());
  const auto answers = answer(both);
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(number_of(attributes_of(answers[0]), RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK), 1U);
  EXPECT_EQ(error_of(answers[1]), 0);
  EXPECT_EQ(error_of(answers[2]), -EOPNOTSUPP);
}

/// The descriptor, with the devices of the test's backend. The C library's names are not interposed on here.
class NetlinkDescriptor : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_rdma_netlink(SOCK_RAW | SOCK_CLOEXEC);
    ASSERT_TRUE(opened);
    number_ = *opened;
    ASSERT_GE(number_, 0);
  }
  void TearDown() override {
    remove_descriptor(number_);
    ::close(number_);
  }
  [[nodiscard]] ssize_t receive(NetlinkBytes& bytes, int flags = 0) const {
    bytes.assign(kReaderBytes, 0);
    sockaddr_nl from{};
    from.nl_pid = 1;
    socklen_t length = sizeof from;
    const ssize_t result = received_netlink(
        number_, ::recv(number_, bytes.data(), bytes.size(), flags | MSG_DONTWAIT), &from, &length);
    if (result >= 0) {
      EXPECT_EQ(length, sizeof from);
      EXPECT_EQ(from.nl_family, AF_NETLINK);
      EXPECT_EQ(from.nl_pid, 0U) << "the kernel";
      bytes.resize(static_cast<size_t>(result));
    }
    return result;
  }
  [[nodiscard]] bool is_readable() const {
    pollfd file{number_, POLLIN, 0};
    return ::poll(&file, 1, 0) == 1;
  }

  int number_ = -1;
};

TEST_F(NetlinkDescriptor, HasAPortAfterItsBind) {
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  EXPECT_EQ(bind_netlink(number_, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
  socklen_t length = sizeof own;
  EXPECT_EQ(name_netlink(number_, reinterpret_cast<sockaddr*>(&own), &length), 0);
  EXPECT_EQ(length, sizeof own);
  EXPECT_EQ(own.nl_pid, static_cast<uint32_t>(getpid()));
  own.nl_pid = 17;
  EXPECT_EQ(bind_netlink(number_, reinterpret_cast<sockaddr*>(&own), sizeof own), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(bind_netlink(number_, reinterpret_cast<sockaddr*>(&own), 4), -1);
}

TEST_F(NetlinkDescriptor, KeepsAnswersThatDoNotFit) {
  NetlinkMessage of_port = about_device(RDMA_NLDEV_CMD_STAT_GET, 0);
  of_port.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
  const NetlinkBytes bytes = of_port.finish();
  EXPECT_FALSE(is_readable());
  constexpr int kQuestions = 2000;  // about 3 MB of answers
  for (int i = 0; i < kQuestions; ++i)
    ASSERT_EQ(send_netlink(number_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  NetlinkBytes answer;
  for (int i = 0; i < kQuestions; ++i) {
    ASSERT_TRUE(is_readable()) << i;
    ASSERT_GT(receive(answer), 0) << i;
    EXPECT_EQ(header_of(answer).nlmsg_len, answer.size());
  }
  EXPECT_FALSE(is_readable());
  EXPECT_LT(receive(answer), 0);
}

TEST_F(NetlinkDescriptor, StatesTheLengthOfALongAnswer) {
  const NetlinkBytes question = request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP).finish();
  ASSERT_GT(send_netlink(number_, question.data(), question.size()), 0);
  char small[4];
  const ssize_t whole = ::recv(number_, small, sizeof small, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  NetlinkBytes answer;
  EXPECT_EQ(receive(answer), whole);
  EXPECT_EQ(header_of(answer).nlmsg_len, static_cast<uint32_t>(whole));
}

TEST_F(NetlinkDescriptor, TakesTheTypesOfTheKernel) {
  EXPECT_EQ(*open_rdma_netlink(SOCK_STREAM), -1);
  EXPECT_EQ(errno, ESOCKTNOSUPPORT);
  EXPECT_EQ(::fcntl(number_, F_GETFD), FD_CLOEXEC);
  EXPECT_TRUE(S_ISSOCK(stat_of(find_descriptor(number_)->sight).st_mode));
}

}  // namespace
}  // namespace faultline::abi
