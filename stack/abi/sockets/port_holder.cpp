// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/sockets/port_holder.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/abi/sockets/wire_address.hpp"
#include "stack/abi/sockets/wire_sockets.hpp"

namespace faultline::abi {
namespace {

// System calls: the C library's functions of these names are interposed on.

/// Opens a file for its scope. UniqueFd would call the program's close().
class OpenFile {
 public:
  OpenFile(const char* path, int flags)
      : fd_(static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | flags))) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) syscall(SYS_close, fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

struct PathText {
  std::array<char, 64> characters{};
};
PathText path_in_process(unsigned process, const char* name) {
  PathText path;
  fmt::format_to_n(path.characters.data(), path.characters.size() - 1, "/proc/{}/{}", process, name);
  return path;
}

template <typename Number>
bool parse_number(std::string_view text, Number& number, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc{} && end == text.data() + text.size();
}

/// Calls `visit` with each name in a folder of /proc that is a number, until it returns true. Returns whether
/// it did.
template <typename Visit>
bool any_number_in(const char* folder, Visit visit) {
  const OpenFile file(folder, O_DIRECTORY);
  alignas(dirent64) std::array<char, 4096> entries;
  for (;;) {
    const auto bytes = syscall(SYS_getdents64, file.get(), entries.data(), entries.size());
    if (bytes <= 0) return false;
    for (long at = 0; at < bytes;) {
      const char* const entry = entries.data() + at;
      unsigned short length_bytes = 0;
      std::memcpy(&length_bytes, entry + offsetof(dirent64, d_reclen), sizeof length_bytes);
      at += length_bytes;
      unsigned number = 0;
      if (parse_number(entry + offsetof(dirent64, d_name), number) && visit(number)) return true;
    }
  }
}

/// The same for each part of a file that ends with `separator`. Parts that are longer than the buffer are not
/// of interest, and come in pieces.
template <typename Visit>
bool any_part_of(const char* path, char separator, Visit visit) {
  const OpenFile file(path, 0);
  std::array<char, 4096> buffer;
  size_t kept_bytes = 0;
  for (;;) {
    const auto bytes = syscall(SYS_read, file.get(), buffer.data() + kept_bytes, buffer.size() - kept_bytes);
    if (bytes <= 0) return false;
    std::string_view rest(buffer.data(), kept_bytes + static_cast<size_t>(bytes));
    for (size_t end = rest.find(separator); end != std::string_view::npos; end = rest.find(separator)) {
      if (visit(rest.substr(0, end))) return true;
      rest.remove_prefix(end + 1);
    }
    kept_bytes = rest.size() == buffer.size() ? 0 : rest.size();
    std::memmove(buffer.data(), rest.data(), kept_bytes);
  }
}

/// A port at an IPv4 address, in host byte order.
PortHolder holder_at(uint32_t ipv4, const WirePort& port) {
  if (port.is_ipv6_alone) return PortHolder::none;
  if (ipv4 == INADDR_ANY) return PortHolder::any_address;
  return wire_address_of(ipv4) == port.own_ipv4 ? PortHolder::own_address : PortHolder::none;
}
/// A port at an IPv6 address. One at `::` counts for IPv4 too.
PortHolder holder_at(const in6_addr& ipv6, const WirePort& port) {
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return holder_at(ntohl(ipv6.s6_addr32[3]), port);
  if (IN6_IS_ADDR_UNSPECIFIED(&ipv6)) return PortHolder::any_address;
  const in6_addr own = ipv6_stand_in(port.own_ipv4);
  const bool is_own = port.is_ipv6_alone && IN6_ARE_ADDR_EQUAL(&ipv6, &own);
  return is_own ? PortHolder::own_address : PortHolder::none;
}

/// True for a socket of IPv6 that IPv4 does not reach.
bool is_ipv6_alone(int socket, const SocketAddress& address) {
  return address.any.sa_family == AF_INET6 && socket_option(socket, IPPROTO_IPV6, IPV6_V6ONLY) == 1;
}

/// A socket of this process, also one that is bound and does not listen yet.
PortHolder holder_of_socket(int socket, const WirePort& port) {
  SocketAddress address;
  socklen_t length = sizeof address;
  if (syscall(SYS_getsockname, socket, &address, &length) != 0) return PortHolder::none;
  if (address.any.sa_family != AF_INET && address.any.sa_family != AF_INET6) return PortHolder::none;
  if (address.ipv4.sin_port != port.port) return PortHolder::none;  // at the same place in both families
  const bool is_udp = socket_option(socket, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_UDP;
  if (is_udp != (port.protocol == IPPROTO_UDP)) return PortHolder::none;
  if (!port.is_ipv6_alone && is_ipv6_alone(socket, address)) return PortHolder::none;
  const PortHolder found = address.any.sa_family == AF_INET
                               ? holder_at(ntohl(address.ipv4.sin_addr.s_addr), port)
                               : holder_at(address.ipv6.sin6_addr, port);
  if (found != PortHolder::own_address) return found;
  // An accepted connection has the port of its listener.
  SocketAddress peer;
  length = sizeof peer;
  return syscall(SYS_getpeername, socket, &peer, &length) == 0 ? PortHolder::none : found;
}

PortHolder holder_in_this_process(const WirePort& port) {
  PortHolder found = PortHolder::none;
  any_number_in("/proc/self/fd", [&](unsigned fd) {
    found = holder_of_socket(static_cast<int>(fd), port);
    return found != PortHolder::none;
  });
  return found;
}

/// A socket of the network namespace that has the port.
struct Held {
  uint64_t inode = 0;
  PortHolder holder = PortHolder::none;
};
struct HeldList {
  std::array<Held, 32> entries;
  size_t count = 0;
};

/// An address as the kernel prints it: each word of it as it is in memory, in hexadecimal digits. That of
/// IPv4 comes in its IPv4-mapped form.
std::optional<in6_addr> printed_address(std::string_view text) {
  constexpr size_t kDigits = 8;
  in6_addr address = ipv4_mapped(INADDR_ANY);
  std::array<uint32_t, 4> words{};
  const size_t count = text.size() / kDigits;
  if (text.size() % kDigits != 0 || (count != 1 && count != words.size())) return std::nullopt;
  for (size_t i = 0; i < count; ++i)
    if (!parse_number(text.substr(i * kDigits, kDigits), words[i], 16)) return std::nullopt;
  if (count == 1)
    address.s6_addr32[3] = words[0];
  else
    std::memcpy(&address, words.data(), sizeof address);
  return address;
}

/// A row of /proc/net/tcp and the like (proc(5)).
struct SocketRow {
  in6_addr own{};
  in_port_t port = 0;  ///< host byte order
  bool listens = false;
  uint64_t inode = 0;
};
std::optional<SocketRow> socket_row_of(std::string_view text) {
  std::array<std::string_view, 10> fields;
  for (std::string_view& field : fields) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    field = text.substr(0, text.find(' '));
    text.remove_prefix(field.size());
  }
  constexpr std::string_view kListens = "0A";
  const auto& [number, own, peer, state, queues, timer, resent, user, timeout, inode] = fields;
  const size_t colon = own.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto address = printed_address(own.substr(0, colon));
  SocketRow row{.listens = state == kListens};
  if (!address || !parse_number(own.substr(colon + 1), row.port, 16) || !parse_number(inode, row.inode))
    return std::nullopt;
  row.own = *address;
  return row;
}

void add_row(std::string_view text, const WirePort& port, HeldList& list) {
  const auto row = socket_row_of(text);
  if (!row || row->port != ntohs(port.port) || (port.protocol != IPPROTO_UDP && !row->listens)) return;
  const PortHolder holder = holder_at(row->own, port);
  if (holder != PortHolder::none && list.count < list.entries.size())
    list.entries[list.count++] = {.inode = row->inode, .holder = holder};
}

HeldList list_held(const WirePort& port) {
  HeldList list;
  const bool is_udp = port.protocol == IPPROTO_UDP;
  for (const char* const path :
       {is_udp ? "/proc/net/udp" : "/proc/net/tcp", is_udp ? "/proc/net/udp6" : "/proc/net/tcp6"})
    any_part_of(path, '\n', [&](std::string_view row) {
      add_row(row, port, list);
      return false;
    });
  return list;
}

bool has_own_address(unsigned process, uint32_t own_ipv4) {
  constexpr std::string_view kName = "FAULTLINE_WIRE=";
  const PathText path = path_in_process(process, "environ");
  return any_part_of(path.characters.data(), '\0', [&](std::string_view variable) {
    return variable.starts_with(kName) && requested_address(variable.substr(kName.size())) == own_ipv4;
  });
}

/// Which of the list a process has.
PortHolder holder_in_process(unsigned process, const HeldList& list) {
  PortHolder found = PortHolder::none;
  const PathText folder = path_in_process(process, "fd");
  const OpenFile descriptors(folder.characters.data(), O_DIRECTORY);
  any_number_in(folder.characters.data(), [&](unsigned fd) {
    std::array<char, 16> name{};
    std::to_chars(name.data(), name.data() + name.size(), fd);
    std::array<char, 64> text;
    const auto bytes = syscall(SYS_readlinkat, descriptors.get(), name.data(), text.data(), text.size());
    constexpr std::string_view kSocket = "socket:[";
    std::string_view target(text.data(), static_cast<size_t>(std::max(bytes, 0L)));
    uint64_t inode = 0;
    if (!target.starts_with(kSocket) || !target.ends_with(']')) return false;
    target.remove_prefix(kSocket.size());
    target.remove_suffix(1);
    if (!parse_number(target, inode)) return false;
    const Held* const end = list.entries.data() + list.count;
    const Held* const held =
        std::find_if(list.entries.data(), end, [&](const Held& one) { return one.inode == inode; });
    if (held != end) found = held->holder;
    return held != end;
  });
  return found;
}

}  // namespace

PortHolder port_holder(const WirePort& port) {
  PortHolder found = holder_in_this_process(port);
  if (found != PortHolder::none) return found;
  const HeldList list = list_held(port);
  if (list.count == 0) return found;
  const auto self = static_cast<unsigned>(getpid());
  any_number_in("/proc", [&](unsigned process) {
    if (process != self && has_own_address(process, port.own_ipv4)) found = holder_in_process(process, list);
    return found != PortHolder::none;
  });
  return found;
}

bool listens_at_own_address_alone(const WirePort& port, const in6_addr& localhost) {
  bool at_own_address = false, at_localhost = false;
  const auto look = [&](std::string_view text) {
    const auto row = socket_row_of(text);
    if (!row) return false;  // the heading
    if (row->port == ntohs(port.port) && row->listens) {
      at_own_address |= holder_at(row->own, port) == PortHolder::own_address;
      at_localhost |= IN6_ARE_ADDR_EQUAL(&row->own, &localhost);
    }
    return !row->listens;  // the kernel prints the sockets that listen first
  };
  if (IN6_IS_ADDR_V4MAPPED(&localhost)) any_part_of("/proc/net/tcp", '\n', look);
  any_part_of("/proc/net/tcp6", '\n', look);
  return at_own_address && !at_localhost;
}

}  // namespace faultline::abi
