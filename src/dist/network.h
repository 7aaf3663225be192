// Which of this machine's addresses the other processes can reach.
#pragma once

#include <string>

namespace renorm::dist {

bool is_loopback(const std::string& host);

// The numeric address of this machine in the network of `host`: the one that `host` resolves to, or one of
// the same subnet, or, if `host` is empty or in no network of this machine, the address of the only network
// interface. Throws UsageError if there is no such choice; GLOO_SOCKET_IFNAME then names the interface.
std::string address_towards(const std::string& host);

}  // namespace renorm::dist
