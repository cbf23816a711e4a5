// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/memif/memif_port.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <rte_interrupts.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/interrupt_thread.hpp"
#include "pmd_glue/memif/memif_client.hpp"
#include "stack/base/log.hpp"
#include "stack/base/process/process_local.hpp"

namespace faultline::glue {

using memif::Handshake;

/// All memif ports of the process.
struct MemifPorts {
  /// A connection that has received HELLO, but has not sent INIT yet.
  struct Newcomer {
    std::string socket;
    uint64_t serial;
  };
  // Limit of connections without INIT: each occupies a descriptor of the process.
  static constexpr size_t kMostNewcomers = 8;

  std::mutex mutex;
  std::vector<MemifPort*> ports;
  std::map<int, Newcomer> newcomers;
  uint64_t next_serial = 1;
  // The connection whose INIT net_memif handles now; the interrupt thread handles one at a time.
  int introduced = -1;
  MemifPort* introduced_to = nullptr;
  std::optional<Handshake> introduction;
  std::map<rte_intr_handle*, uint64_t> transmit_handles;  ///< value: the port's serial number
  struct Listener {
    int descriptor;
    rte_intr_callback_fn callback;
    void* argument;
  };
  std::map<std::string, Listener> listeners;  ///< by socket path; ports may share one

  template <typename Predicate>
  MemifPort* find(Predicate predicate) const {
    const auto found = std::ranges::find_if(ports, predicate);
    return found == ports.end() ? nullptr : *found;
  }
  [[nodiscard]] MemifPort* at(const std::string& socket, MemifPort::Role role) const {
    return find([&](const MemifPort* port) { return port->role_ == role && port->socket_ == socket; });
  }
  [[nodiscard]] MemifPort* connected_by(int connection) const {
    return find([&](const MemifPort* port) { return port->connection_ == connection; });
  }
  [[nodiscard]] MemifPort* of(const rte_eth_dev* device) const {
    return find([&](const MemifPort* port) { return port->device_ == device; });
  }

  void greet(int connection);
  void on_sent(int connection, std::span<const uint8_t> message, std::span<const int> descriptors);
  bool on_received(int connection, std::span<const uint8_t> message, std::span<const int> descriptors);
  bool on_newcomer(const std::string& socket, int connection, std::span<const uint8_t> message,
                   std::span<const int> descriptors);
  static void note_violation(MemifPort& port, const char* why);
  void note_connection(const rte_eth_dev* device, int connection) const;
  bool before_connect(rte_eth_dev* device) const;
  void after_connect(rte_eth_dev* device, bool succeeded) const;
  void before_free_regions(rte_eth_dev* device, std::vector<int>& forgotten) const;
  void end_link(uint64_t serial) const;
};

namespace {

MemifPorts& all_ports() {
  static constinit ProcessLocal<MemifPorts> instance;
  return instance.get();
}

// State of this thread.
thread_local MemifPort* being_created = nullptr;
thread_local MemifPort* being_configured = nullptr;
thread_local rte_eth_dev* being_connected = nullptr;

std::string path_of(int connection) {
  sockaddr_un address{};
  socklen_t length_bytes = sizeof address;
  if (getsockname(connection, reinterpret_cast<sockaddr*>(&address), &length_bytes) != 0 ||
      address.sun_family != AF_UNIX)
    return {};
  return {address.sun_path, strnlen(address.sun_path, sizeof address.sun_path)};
}

bool is_of_type(std::span<const uint8_t> message, memif::MessageType type) {
  memif::MessageType found{};
  if (message.size() != memif::kMessageBytes) return false;
  std::memcpy(&found, message.data(), sizeof found);
  return found == type;
}

}  // namespace

MemifPort::MemifPort(std::string socket, Role role)
    : socket_(std::move(socket)), role_(role), serial_([] {
        MemifPorts& all = all_ports();
        const std::lock_guard guard(all.mutex);
        return all.next_serial++;
      }()) {
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  all.ports.push_back(this);
}

MemifPort::~MemifPort() {
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  std::erase(all.ports, this);
  if (all.introduced_to == this) all.introduced = -1;
}

size_t MemifPort::receive(rte_mempool* pool, uint16_t port, std::span<rte_mbuf*> frames) {
  MemifLink* const link = link_.load(std::memory_order_acquire);
  if (link == nullptr) return 0;
  const size_t received = link->receive(pool, port, frames);
  if (link->violation() != nullptr) [[unlikely]]
    end_link();
  return received;
}

size_t MemifPort::transmit(std::span<rte_mbuf* const> frames) {
  MemifLink* const link = link_.load(std::memory_order_acquire);
  if (link == nullptr) return 0;
  const size_t sent = link->transmit(frames);
  if (link->violation() != nullptr) [[unlikely]]
    end_link();
  return sent;
}

/// Requests the end of a link, once. The interrupt thread ends it, since that thread owns the connection's
/// descriptor and closes it.
void MemifPort::end_link() {
  if (ending_.exchange(true, std::memory_order_relaxed)) return;
  post_to_interrupt_thread([serial = serial_] {
    MemifPorts& all = all_ports();
    const std::lock_guard guard(all.mutex);
    all.end_link(serial);
  });
}

void MemifPorts::end_link(uint64_t serial) const {
  MemifPort* const port = find([&](const MemifPort* each) { return each->serial_ == serial; });
  if (port == nullptr || port->owned_link_ == nullptr || port->owned_link_->violation() == nullptr) return;
  note_violation(*port, port->owned_link_->violation());
  // net_memif then reads the end of the connection, and closes the link.
  shutdown(port->connection_, SHUT_RDWR);
}

/// Logs at powers of two only, so that a peer that breaks each link does not fill the log.
void MemifPorts::note_violation(MemifPort& port, const char* why) {
  const uint64_t count = port.violations_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (std::has_single_bit(count))
    log().warn("memif {}: the peer {}: its link is closed ({} so far)", port.socket_, why, count);
}

MemifPort::Creation::Creation(MemifPort* port) {
  being_created = port;
}

MemifPort::Creation::~Creation() {
  being_created = nullptr;
}

MemifPort::TransmitSetup::TransmitSetup(MemifPort* port) {
  being_configured = port;
}

MemifPort::TransmitSetup::~TransmitSetup() {
  being_configured = nullptr;
}

void MemifPort::free_forgotten() {
  close_listener();
  std::vector<rte_intr_handle*> handles;
  MemifPorts& all = all_ports();
  {
    const std::lock_guard guard(all.mutex);
    for (const auto& [handle, serial] : all.transmit_handles)
      if (serial == serial_) handles.push_back(handle);
  }
  for (rte_intr_handle* const handle : handles) rte_intr_instance_free(handle);
}

void MemifPort::close_listener() {
  MemifPorts::Listener listener{};
  {
    MemifPorts& all = all_ports();
    const std::lock_guard guard(all.mutex);
    const auto found = all.listeners.find(socket_);
    const bool is_shared = all.find([this](const MemifPort* port) {
      return port != this && port->role_ == Role::server && port->socket_ == socket_;
    }) != nullptr;
    if (role_ != Role::server || found == all.listeners.end() || is_shared) return;
    listener = found->second;
    all.listeners.erase(found);
  }
  // EAL identifies its copy of the handle by the descriptor; net_memif has freed its own.
  rte_intr_handle* const handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  if (handle == nullptr) return;
  if (rte_intr_fd_set(handle, listener.descriptor) == 0 &&
      rte_intr_callback_unregister(handle, listener.callback, listener.argument) >= 0)
    close(listener.descriptor);
  rte_intr_instance_free(handle);
}

/// Registers a new connection. If too many have sent no INIT, the oldest is closed.
void MemifPorts::greet(int connection) {
  const std::string socket = path_of(connection);
  if (at(socket, MemifPort::Role::server) == nullptr) return;
  newcomers[connection] = {socket, next_serial++};
  auto oldest = newcomers.end();
  size_t count = 0;
  for (auto each = newcomers.begin(); each != newcomers.end(); ++each) {
    if (each->second.socket != socket) continue;
    ++count;
    if (oldest == newcomers.end() || each->second.serial < oldest->second.serial) oldest = each;
  }
  if (count > kMostNewcomers) shutdown(oldest->first, SHUT_RDWR);
}

void MemifPorts::on_sent(int connection, std::span<const uint8_t> message, std::span<const int> descriptors) {
  if (is_of_type(message, memif::MessageType::hello)) return greet(connection);
  if (connection == introduced) {
    // net_memif sends ACK for the INIT of a connection that it has assigned to the port.
    if (is_of_type(message, memif::MessageType::ack)) {
      introduced_to->connection_ = connection;
      introduced_to->handshake_.emplace(std::move(*introduction));
    }
    introduced = -1;
    introduction.reset();
    return;
  }
  if (MemifPort* const port = connected_by(connection); port != nullptr && port->handshake_)
    port->handshake_->on_send(message, descriptors);
}

bool MemifPorts::on_received(int connection, std::span<const uint8_t> message,
                             std::span<const int> descriptors) {
  introduced = -1;
  introduction.reset();
  if (const auto newcomer = newcomers.find(connection); newcomer != newcomers.end()) {
    const std::string socket = std::move(newcomer->second.socket);
    // net_memif closes it after this message, or assigns it to the port.
    newcomers.erase(newcomer);
    return on_newcomer(socket, connection, message, descriptors);
  }
  MemifPort* const port = connected_by(connection);
  if (port == nullptr || !port->handshake_ || message.empty()) return true;
  const char* const why = port->handshake_->on_receive(message, descriptors);
  if (why != nullptr) note_violation(*port, why);
  return why == nullptr;
}

bool MemifPorts::on_newcomer(const std::string& socket, int connection, std::span<const uint8_t> message,
                             std::span<const int> descriptors) {
  if (message.empty()) return true;
  MemifPort* const port = at(socket, MemifPort::Role::server);
  if (port == nullptr) return false;  // the port was closed meanwhile
  introduction.emplace(Handshake::Role::server);
  const char* const why = introduction->on_receive(message, descriptors);
  if (why != nullptr) {
    note_violation(*port, why);
    return false;
  }
  introduced = connection;
  introduced_to = port;
  return true;
}

/// Records the connection of a client; -1: the server is not there.
void MemifPorts::note_connection(const rte_eth_dev* device, int connection) const {
  MemifPort* const port = of(device);
  if (port == nullptr) return;
  port->connection_ = connection;
  if (connection >= 0)
    port->handshake_.emplace(Handshake::Role::client);
  else
    port->handshake_.reset();
}

bool MemifPorts::before_connect(rte_eth_dev* device) const {
  MemifPort* const port = of(device);
  if (port == nullptr) return true;  // not a MemifPort
  auto geometry = port->handshake_ ? port->handshake_->take_geometry() : std::nullopt;
  if (!geometry) return false;
  port->owned_link_ = std::make_unique<MemifLink>(port->role_, std::move(*geometry), kBufferBytes);
  port->owned_link_->count_oversized_in(port->oversized_);
  port->driver_has_mapped_ = port->owned_link_->violation() == nullptr;
  return port->driver_has_mapped_;
}

void MemifPorts::after_connect(rte_eth_dev* device, bool succeeded) const {
  MemifPort* const port = of(device);
  if (port == nullptr || !succeeded) return;
  port->owned_link_->begin();
  port->ending_.store(false, std::memory_order_relaxed);
  port->link_.store(port->owned_link_.get(), std::memory_order_release);
}

void MemifPorts::before_free_regions(rte_eth_dev* device, std::vector<int>& forgotten) const {
  MemifPort* const port = of(device);
  if (port == nullptr) return;
  port->link_.store(nullptr, std::memory_order_relaxed);
  port->owned_link_.reset();
  // net_memif closes the file of a region only if it has mapped it. The client maps at once.
  if (port->role_ == MemifPort::Role::server && port->handshake_ && !port->driver_has_mapped_)
    forgotten = port->handshake_->region_descriptors();
  port->handshake_.reset();
  port->driver_has_mapped_ = false;
  port->connection_ = -1;
}

namespace memif {

void on_socket_init(rte_eth_dev* device) {
  if (being_created != nullptr) being_created->bind(device);
}

void before_connection(rte_eth_dev* device) {
  being_connected = device;
}

void after_connection(rte_eth_dev* device, bool succeeded) {
  being_connected = nullptr;
  if (succeeded) return;
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  all.note_connection(device, -1);
}

void on_connection(int descriptor) {
  if (being_connected == nullptr) return;
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  all.note_connection(being_connected, descriptor);
}

void on_sent(int connection, std::span<const uint8_t> message, std::span<const int> descriptors) {
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  all.on_sent(connection, message, descriptors);
}

bool on_received(int connection, std::span<const uint8_t> message, std::span<const int> descriptors) {
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  return all.on_received(connection, message, descriptors);
}

bool before_connect(rte_eth_dev* device) {
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  return all.before_connect(device);
}

void after_connect(rte_eth_dev* device, bool succeeded) {
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  all.after_connect(device, succeeded);
}

void before_free_regions(rte_eth_dev* device, std::vector<int>& forgotten) {
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  all.before_free_regions(device, forgotten);
}

void on_callback_registered(const rte_intr_handle* handle, rte_intr_callback_fn callback, void* argument) {
  // While its device is created, a server has no connection: this handle is the listener's.
  if (being_created != nullptr) being_created->keep_listener(rte_intr_fd_get(handle), callback, argument);
}

void on_handle_allocated(rte_intr_handle* handle) {
  if (being_configured != nullptr && handle != nullptr) being_configured->keep_transmit_handle(handle);
}

void on_handle_freed(rte_intr_handle* handle) {
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  all.transmit_handles.erase(handle);
}

}  // namespace memif

void MemifPort::bind(rte_eth_dev* device) {
  const std::lock_guard guard(all_ports().mutex);
  device_ = device;
}

void MemifPort::keep_listener(int descriptor, rte_intr_callback_fn callback, void* argument) {
  if (role_ != Role::server) return;
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  all.listeners[socket_] = {descriptor, callback, argument};
}

void MemifPort::keep_transmit_handle(rte_intr_handle* handle) {
  MemifPorts& all = all_ports();
  const std::lock_guard guard(all.mutex);
  all.transmit_handles[handle] = serial_;
}

}  // namespace faultline::glue
