// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/netlink/answers.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <endian.h>
#include <netinet/in.h>  // before linux/in6.h, which would define in6_addr without the names of IN6_IS_ADDR_*
#include <rdma/rdma_user_cm.h>
#include <sys/sysmacros.h>

#include "stack/abi/netlink/objects.hpp"
#include "stack/abi/tree/known_devices.hpp"
#include "stack/abi/tree/standard_counters.hpp"
#include "stack/verbs/objects/counter_list.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {
namespace {

/// The result of a command: an errno, with a reason for NETLINK_EXT_ACK, or "".
struct Outcome {
  int error = 0;
  std::string_view reason;
};
constexpr Outcome kDone{};
constexpr Outcome kCutOff{EINVAL, "An attribute of the request is cut off"};
constexpr Outcome kNoCommand{EINVAL, "RDMA netlink has no such command"};
constexpr Outcome kUnsupported{EOPNOTSUPP, "Faultline's devices do not have this command"};
constexpr Outcome kNoDevice{EINVAL, "The request names no device of Faultline"};
constexpr Outcome kNoPort{EINVAL, "Faultline's devices have port 1 alone"};
// Without a reason: rdma(8) would print it, although it then asks for all objects.
constexpr Outcome kNoObject{ENOENT, ""};

struct Question {
  const NetlinkRequest& request;
  const NetlinkAsker& asker;
  const NetlinkSources& sources;
  std::vector<NetlinkBytes>& answers;

  [[nodiscard]] NetlinkMessage message() const {
    return {request.header().nlmsg_type, static_cast<uint16_t>(request.is_dump() ? NLM_F_MULTI : 0),
            request.header().nlmsg_seq, asker.port};
  }
  void send(NetlinkMessage message) const { answers.push_back(message.finish()); }
  [[nodiscard]] const DeviceFacts* device() const {
    const auto index = request.u32(RDMA_NLDEV_ATTR_DEV_INDEX);
    const auto found = std::find_if(
        sources.devices.begin(), sources.devices.end(),
        [&](const DeviceFacts& device) { return index && static_cast<uint32_t>(device.index) == *index; });
    return found == sources.devices.end() ? nullptr : &*found;
  }
  [[nodiscard]] bool has_port() const {
    return request.u32(RDMA_NLDEV_ATTR_PORT_INDEX) == uint32_t{verbs::kPortNumber};
  }
};

using Handler = Outcome (*)(const Question& question);

void put_name(NetlinkMessage& message, const DeviceFacts& device) {
  message.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, static_cast<uint32_t>(device.index));
  message.put_text(RDMA_NLDEV_ATTR_DEV_NAME, device.description->name);
}

// --- devices and ports ---

void send_device(const Question& question, const DeviceFacts& device) {
  NetlinkMessage message = question.message();
  put_name(message, device);
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, verbs::kPortNumber);  // here: the number of ports
  message.put_u64(RDMA_NLDEV_ATTR_CAP_FLAGS, verbs::device_capabilities());
  message.put_text(RDMA_NLDEV_ATTR_FW_VERSION, device.version);
  message.put_u64(RDMA_NLDEV_ATTR_NODE_GUID, be64toh(device.guid_be));
  message.put_u64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, be64toh(device.guid_be));
  message.put_u8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, IBV_NODE_CA);
  message.put_text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce");
  question.send(std::move(message));
}

Outcome get_device(const Question& question) {
  const DeviceFacts* const device = question.device();
  if (device == nullptr) return kNoDevice;
  send_device(question, *device);
  return kDone;
}

Outcome dump_devices(const Question& question) {
  for (const DeviceFacts& device : question.sources.devices) send_device(question, device);
  return kDone;
}

/// A port of RoCE has no subnet prefix, LID and LMC.
void send_port(const Question& question, const DeviceFacts& device) {
  NetlinkMessage message = question.message();
  put_name(message, device);
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, verbs::kPortNumber);
  message.put_u64(RDMA_NLDEV_ATTR_CAP_FLAGS, device.port.port_cap_flags);
  message.put_u8(RDMA_NLDEV_ATTR_PORT_STATE, static_cast<uint8_t>(device.port.state));
  message.put_u8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, device.port.phys_state);
  if (device.interface_index != 0) {
    message.put_u32(RDMA_NLDEV_ATTR_NDEV_INDEX, device.interface_index);
    message.put_text(RDMA_NLDEV_ATTR_NDEV_NAME, device.interface);
  }
  question.send(std::move(message));
}

Outcome dump_ports(const Question& question) {
  const DeviceFacts* const device = question.device();
  if (device == nullptr) return kNoDevice;
  send_port(question, *device);
  return kDone;
}

Outcome get_port(const Question& question) {
  if (question.device() == nullptr) return kNoDevice;
  return question.has_port() ? dump_ports(question) : kNoPort;
}

Outcome get_system(const Question& question) {
  NetlinkMessage message = question.message();
  constexpr uint8_t kShared = 1;        // the devices are in each network namespace of the user
  constexpr uint8_t kCopiesOnFork = 1;  // ibv_is_fork_initialized(3): IBV_FORK_UNNEEDED
  message.put_u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, kShared);
  message.put_u8(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, kCopiesOnFork);
  question.send(std::move(message));
  return kDone;
}

/// librdmacm asks for "rdma_cm", libibverbs for "uverbs" of a device.
Outcome get_character_device(const Question& question) {
  const auto type = question.request.text(RDMA_NLDEV_ATTR_CHARDEV_TYPE);
  if (!type) return {EINVAL, "The request names no type of device file"};
  constexpr uint64_t kVerbsAbi = 1;  // of /sys/class/infiniband_verbs/uverbsN/abi_version
  NetlinkMessage message = question.message();
  const auto put = [&](std::string_view name, uint64_t abi, uint32_t major, uint32_t minor) {
    message.put_u64(RDMA_NLDEV_ATTR_CHARDEV, makedev(major, minor));
    message.put_u64(RDMA_NLDEV_ATTR_CHARDEV_ABI, abi);
    message.put_text(RDMA_NLDEV_ATTR_CHARDEV_NAME, name);
  };
  if (*type == "rdma_cm") {
    put("rdma_cm", RDMA_USER_CM_ABI_VERSION, kMiscMajor, kConnectionManagerMinor);
  } else if (*type == "uverbs") {
    const DeviceFacts* const device = question.device();
    if (device == nullptr) return kNoDevice;
    put(device->verbs_name, kVerbsAbi, kVerbsMajor, kFirstVerbsMinor + static_cast<uint32_t>(device->index));
  } else {
    return {ENODEV, "Faultline has no device file of this type"};
  }
  question.send(std::move(message));
  return kDone;
}

// --- objects ---

bool is_wanted(const Question& question, const ObjectEntry& entry) {
  const auto port = question.request.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
  return !port || *port == 0 || !entry.port || *entry.port == *port;
}

/// Sends one message for each object of this number. QPNs and handles are a process's own.
Outcome get_object(const Question& question, const ObjectKind& kind) {
  const DeviceFacts* const device = question.device();
  if (device == nullptr) return kNoDevice;
  const auto number = question.request.u32(kind.number);
  if (!number) return {EINVAL, "The request has no number of an object"};
  size_t found = 0;
  for (const auto& process : question.sources.processes(device->description->name)) {
    for (const ObjectEntry& entry : kind.list(*process)) {
      if (entry.number != *number || !is_wanted(question, entry)) continue;
      NetlinkMessage message = question.message();
      put_name(message, *device);
      entry.put(message);
      question.send(std::move(message));
      ++found;
    }
  }
  return found == 0 ? kNoObject : kDone;
}

/// Writes entries to as many messages as they need.
class TableDump {
 public:
  TableDump(const Question& question, const DeviceFacts& device, const ObjectKind& kind)
      : question_(question), device_(device), kind_(kind), message_(question.message()) {
    begin();
  }

  void add(const ObjectEntry& entry) {
    const size_t before = message_.size();
    put(entry);
    if (message_.size() <= kMostMessageBytes || entries_ == 0) {
      ++entries_;
      return;
    }
    message_.shrink(before);
    send();
    message_ = question_.message();
    begin();
    put(entry);
    entries_ = 1;
  }
  /// Sends the last message. As the kernel, sends none for a table without entries.
  void end() {
    if (entries_ != 0) send();
  }

 private:
  void begin() {
    put_name(message_, device_);
    table_ = message_.begin_nested(kind_.table);
  }
  void put(const ObjectEntry& entry) {
    message_.put_nested(kind_.entry, [&] { entry.put(message_); });
  }
  void send() {
    message_.end_nested(table_);
    question_.send(std::move(message_));
  }

  const Question& question_;
  const DeviceFacts& device_;
  const ObjectKind& kind_;
  NetlinkMessage message_;
  size_t table_ = 0;
  size_t entries_ = 0;
};

Outcome dump_objects(const Question& question, const ObjectKind& kind) {
  const DeviceFacts* const device = question.device();
  if (device == nullptr) return kNoDevice;
  TableDump dump(question, *device, kind);
  for (const auto& process : question.sources.processes(device->description->name))
    for (const ObjectEntry& entry : kind.list(*process))
      if (is_wanted(question, entry)) dump.add(entry);
  dump.end();
  return kDone;
}

template <const ObjectKind& kKind>
Outcome get_one(const Question& question) {
  return get_object(question, kKind);
}
template <const ObjectKind& kKind>
Outcome dump_all(const Question& question) {
  return dump_objects(question, kKind);
}

void send_summary(const Question& question, const DeviceFacts& device) {
  const auto processes = question.sources.processes(device.description->name);
  NetlinkMessage message = question.message();
  put_name(message, device);
  message.put_nested(RDMA_NLDEV_ATTR_RES_SUMMARY, [&] {
    for (const ObjectKind* const kind : kinds_of_summary()) {
      uint64_t count = 0;
      for (const auto& process : processes) count += kind->list(*process).size();
      message.put_nested(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY, [&] {
        message.put_text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, kind->name);
        message.put_u64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
      });
    }
  });
  question.send(std::move(message));
}

Outcome get_summary(const Question& question) {
  const DeviceFacts* const device = question.device();
  if (device == nullptr) return kNoDevice;
  send_summary(question, *device);
  return kDone;
}

Outcome dump_summaries(const Question& question) {
  for (const DeviceFacts& device : question.sources.devices) send_summary(question, device);
  return kDone;
}

// --- counters ---

constexpr std::string_view kHwFolder = "hw_counters/";

/// Calls put(name, value) for each counter of a port. Those with the names of drivers alone: all of
/// verbs::counter_texts() would not fit into the buffer of rdma(8).
template <typename Put>
void for_each_counter(std::span<const uint64_t> values, Put put) {
  const std::vector<CounterFile> files = counter_files(named_counters(values));
  for (size_t i = 0; i < standard_counters().size(); ++i)
    if (files[i].file.starts_with(kHwFolder)) put(files[i].file.substr(kHwFolder.size()), files[i].value);
}

Outcome get_port_counters(const Question& question, const DeviceFacts& device) {
  if (!question.has_port()) return kNoPort;
  const std::vector<uint64_t> values = question.sources.counters(device.description->name);
  NetlinkMessage message = question.message();
  put_name(message, device);
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, verbs::kPortNumber);
  message.put_nested(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, [&] {
    for_each_counter(values,
                     [&](const std::string& name, uint64_t value) { put_counter(message, name, value); });
  });
  question.send(std::move(message));
  return kDone;
}

/// Each QP has a counter of its own from its creation on. No mode of the kernel's binds them so.
Outcome get_mode(const Question& question, const DeviceFacts& device) {
  if (!question.has_port()) return kNoPort;
  NetlinkMessage message = question.message();
  put_name(message, device);
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, verbs::kPortNumber);
  message.put_u32(RDMA_NLDEV_ATTR_STAT_MODE, RDMA_COUNTER_MODE_NONE);
  question.send(std::move(message));
  return kDone;
}

Outcome get_counters(const Question& question) {
  const DeviceFacts* const device = question.device();
  if (device == nullptr) return kNoDevice;
  const auto resource = question.request.u32(RDMA_NLDEV_ATTR_STAT_RES);
  if (!resource) return get_port_counters(question, *device);
  if (*resource == RDMA_NLDEV_ATTR_RES_MR) return get_object(question, kMrCounters);
  if (*resource != RDMA_NLDEV_ATTR_RES_QP) return kUnsupported;
  if (question.request.has(RDMA_NLDEV_ATTR_STAT_MODE)) return get_mode(question, *device);
  return get_object(question, kQpCounters);
}

Outcome dump_counters(const Question& question) {
  const auto resource = question.request.u32(RDMA_NLDEV_ATTR_STAT_RES);
  if (resource == uint32_t{RDMA_NLDEV_ATTR_RES_QP}) return dump_objects(question, kQpCounters);
  if (resource == uint32_t{RDMA_NLDEV_ATTR_RES_MR}) return dump_objects(question, kMrCounters);
  return kUnsupported;
}

/// No counter is optional.
Outcome get_counter_status(const Question& question) {
  const DeviceFacts* const device = question.device();
  if (device == nullptr) return kNoDevice;
  if (!question.has_port()) return kNoPort;
  NetlinkMessage message = question.message();
  put_name(message, *device);
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, verbs::kPortNumber);
  message.put_nested(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, [&] {
    uint32_t index = 0;
    for_each_counter({}, [&](const std::string& name, uint64_t /*value*/) {
      message.put_nested(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, [&] {
        message.put_text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name);
        message.put_u32(kStatHwcounterIndex, index++);
      });
    });
  });
  question.send(std::move(message));
  return kDone;
}

// --- commands ---

Outcome refuse(const Question& /*question*/) {
  return kUnsupported;
}

struct Command {
  Handler get = nullptr;   ///< nullptr: there is no such command
  Handler dump = nullptr;  ///< nullptr: `get` answers a dump too
};

constexpr size_t kCommands = 25;
constexpr std::array<Command, kCommands> make_commands() {
  std::array<Command, kCommands> commands{};
  commands[RDMA_NLDEV_CMD_GET] = {get_device, dump_devices};
  commands[RDMA_NLDEV_CMD_PORT_GET] = {get_port, dump_ports};
  commands[RDMA_NLDEV_CMD_SYS_GET] = {get_system, nullptr};
  commands[RDMA_NLDEV_CMD_RES_GET] = {get_summary, dump_summaries};
  commands[RDMA_NLDEV_CMD_RES_QP_GET] = {get_one<kQps>, dump_all<kQps>};
  commands[RDMA_NLDEV_CMD_RES_CM_ID_GET] = {get_one<kCmIds>, dump_all<kCmIds>};
  commands[RDMA_NLDEV_CMD_RES_CQ_GET] = {get_one<kCqs>, dump_all<kCqs>};
  commands[RDMA_NLDEV_CMD_RES_MR_GET] = {get_one<kMrs>, dump_all<kMrs>};
  commands[RDMA_NLDEV_CMD_RES_PD_GET] = {get_one<kPds>, dump_all<kPds>};
  commands[RDMA_NLDEV_CMD_RES_CTX_GET] = {get_one<kContexts>, dump_all<kContexts>};
  commands[RDMA_NLDEV_CMD_RES_SRQ_GET] = {get_one<kSrqs>, dump_all<kSrqs>};
  commands[RDMA_NLDEV_CMD_GET_CHARDEV] = {get_character_device, nullptr};
  commands[RDMA_NLDEV_CMD_STAT_GET] = {get_counters, dump_counters};
  commands[kStatGetStatus] = {get_counter_status, nullptr};
  // They change a device, or show the structures of a driver's firmware.
  for (const auto command :
       {RDMA_NLDEV_CMD_SET, RDMA_NLDEV_CMD_NEWLINK, RDMA_NLDEV_CMD_DELLINK, RDMA_NLDEV_CMD_SYS_SET,
        RDMA_NLDEV_CMD_STAT_SET, RDMA_NLDEV_CMD_STAT_DEL, RDMA_NLDEV_CMD_RES_QP_GET_RAW,
        RDMA_NLDEV_CMD_RES_CQ_GET_RAW, RDMA_NLDEV_CMD_RES_MR_GET_RAW})
    commands[command] = {refuse, nullptr};
  return commands;
}
constexpr auto kCommandTable = make_commands();

Outcome run(const Question& question) {
  const NetlinkRequest& request = question.request;
  if (!request.is_well_formed()) return kCutOff;
  if (request.client() != RDMA_NL_NLDEV || request.command() >= kCommandTable.size()) return kNoCommand;
  const Command& command = kCommandTable[request.command()];
  if (command.get == nullptr) return kNoCommand;
  return request.is_dump() && command.dump != nullptr ? command.dump(question) : command.get(question);
}

/// Acknowledges a request (netlink(7)): NLMSG_ERROR with 0, or with a negative errno value.
NetlinkBytes acknowledgement(const NetlinkRequest& request, const NetlinkAsker& asker,
                             const Outcome& outcome) {
  NetlinkMessage message(NLMSG_ERROR, 0, request.header().nlmsg_seq, asker.port);
  message.append_value(-outcome.error);
  message.append_value(request.header());
  if (outcome.error != 0 && !asker.wants_capped_acks) {
    message.append(request.bytes().subspan(sizeof(nlmsghdr)));
    message.pad();
  } else {
    message.add_flags(NLM_F_CAPPED);
  }
  if (!outcome.reason.empty() && asker.wants_extended_acks) {
    message.add_flags(NLM_F_ACK_TLVS);
    message.put_text(NLMSGERR_ATTR_MSG, outcome.reason);
  }
  return message.finish();
}

NetlinkBytes end_of_dump(const NetlinkRequest& request, const NetlinkAsker& asker) {
  NetlinkMessage message(NLMSG_DONE, NLM_F_MULTI, request.header().nlmsg_seq, asker.port);
  message.append_value(int{0});
  return message.finish();
}

}  // namespace

std::vector<NetlinkBytes> answer_netlink(std::span<const uint8_t> bytes, const NetlinkAsker& asker,
                                         const NetlinkSources& sources) {
  std::vector<NetlinkBytes> answers;
  size_t length = 0;
  while (const auto request = NetlinkRequest::read(bytes, length)) {
    bytes = bytes.subspan(length);
    // As the kernel: neither answers nor control messages are requests.
    if ((request->header().nlmsg_flags & NLM_F_REQUEST) == 0) continue;
    Outcome outcome;
    if (request->header().nlmsg_type >= NLMSG_MIN_TYPE) outcome = run({*request, asker, sources, answers});
    const bool is_dump = request->is_dump() && outcome.error == 0;
    if (is_dump && request->header().nlmsg_type >= NLMSG_MIN_TYPE)
      answers.push_back(end_of_dump(*request, asker));
    else if (outcome.error != 0 || (request->header().nlmsg_flags & NLM_F_ACK) != 0)
      answers.push_back(acknowledgement(*request, asker, outcome));
  }
  return answers;
}

}  // namespace faultline::abi
