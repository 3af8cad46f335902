//! What the bytes of a captured packet begin with.

use crate::{ipv4, ipv6};

/// What the bytes of a captured packet begin with. Captures of Ethernet interfaces have whole frames;
/// those of others, and of all interfaces at once, have the packet that a frame would carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Link {
    /// The header of Ethernet.
    #[default]
    Ethernet,
    /// The header of the network protocol with this ethertype.
    Network(u16),
}

impl Link {
    /// That of a packet of IP, by the version in its header; `None` where that is none of IP's.
    pub fn of_ip(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Some(Self::Network(ipv4::ETHERTYPE)),
            6 => Some(Self::Network(ipv6::ETHERTYPE)),
            _ => None,
        }
    }
}
