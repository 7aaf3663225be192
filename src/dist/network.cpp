#include "dist/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <memory>
#include <set>
#include <vector>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::dist {
namespace {

// An IPv4 address in the order of the host.
struct Interface {
  std::string name;
  uint32_t address;
  uint32_t mask;
  bool is_loopback;
};

uint32_t address_in(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

std::string text_of(uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
}

std::vector<Interface> interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || entry->ifa_netmask == nullptr) continue;
    found.push_back({entry->ifa_name, address_in(entry->ifa_addr), address_in(entry->ifa_netmask),
                     (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

std::vector<uint32_t> resolved(const std::string& host) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(first, freeaddrinfo);
  std::vector<uint32_t> found;
  for (const addrinfo* entry = first; entry != nullptr; entry = entry->ai_next) {
    found.push_back(address_in(entry->ai_addr));
  }
  return found;
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

std::string address_towards(const std::string& host) {
  const std::vector<Interface> all = interfaces();
  const std::vector<uint32_t> wanted = host.empty() ? std::vector<uint32_t>() : resolved(host);
  for (const uint32_t address : wanted) {
    for (const Interface& one : all) {
      if (one.address == address && !one.is_loopback) return text_of(one.address);
    }
  }
  for (const uint32_t address : wanted) {
    for (const Interface& one : all) {
      if (!one.is_loopback && (one.address & one.mask) == (address & one.mask)) return text_of(one.address);
    }
  }
  std::set<std::string> names;
  std::string only;
  for (const Interface& one : all) {
    if (one.is_loopback) continue;
    names.insert(one.name);
    if (only.empty()) only = text_of(one.address);
  }
  if (names.size() == 1) return only;
  throw UsageError(
      fmt::format("this machine has {} network interfaces, and none is evidently the one towards {}; set "
                  "GLOO_SOCKET_IFNAME to its name",
                  names.size(), host.empty() ? "the other machines" : "'" + printable(host) + "'"));
}

}  // namespace renorm::dist
