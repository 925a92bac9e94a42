//! Addresses of clients that count as one.

use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that name a network. The others belong to one machine as a rule.
const NETWORK_BITS: u32 = 64;

/// Returns the address of a machine, or the network that it has for itself.
pub(super) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> NETWORK_BITS)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_machine_are_one() {
        for (one, other, are_one) in [
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8:1:2:3::4", "2001:db8:1:2:ffff::", true),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
        ] {
            let [one, other] = [one, other].map(|address| network_of(address.parse().unwrap()));
            assert_eq!(one == other, are_one, "{one} {other}");
        }
    }
}
