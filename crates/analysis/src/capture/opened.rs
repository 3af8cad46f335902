//! A packet without what stood in front of its first header, and that header where it is PPP's or HDLC's.

use tailtap_wire::link::Link;
use tailtap_wire::{ipv4, ipv6};

pub(super) const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
/// What PPP calls protocols that have an ethertype (RFC 1332, 5072, 3032).
const PPP_PROTOCOLS: [(u16, u16); 4] = [
    (0x0021, ipv4::ETHERTYPE),
    (0x0057, ipv6::ETHERTYPE),
    (0x0281, MPLS),
    (0x0283, MPLS_MULTICAST),
];
/// Address and control of PPP in frames like HDLC's (RFC 1662), and the addresses of Cisco's HDLC.
const PPP_IN_HDLC: [u8; 2] = [0xff, 0x03];
const CISCO_HDLC: [[u8; 2]; 2] = [[0x0f, 0x00], [0x8f, 0x00]];

/// A packet without what stands in front of its first header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened<'a> {
    pub bytes: &'a [u8],
    pub wire_len: u32,
    pub link: Link,
    /// The number of the interface, where the packet says it.
    pub interface: Option<u32>,
    /// Whether the machine that captured it sent it, where the packet says it.
    pub outgoing: Option<bool>,
}

impl<'a> Opened<'a> {
    /// Bytes that begin as `link` says, and whose length on the wire is `wire_len`.
    pub fn plain(bytes: &'a [u8], wire_len: u32, link: Link) -> Self {
        Self { bytes, wire_len, link, interface: None, outgoing: None }
    }

    /// The packet behind a header of so many bytes, which were captured.
    pub fn behind(bytes: &'a [u8], wire_len: u32, header: usize, protocol: u16) -> Self {
        let wire_len = wire_len.saturating_sub(header as u32);
        Self::plain(&bytes[header..], wire_len, Link::Network(protocol))
    }
}

/// How long the header of PPP or of Cisco's HDLC is, and the ethertype of what it carries; of a protocol
/// without one PPP's number.
pub(super) fn hdlc(bytes: &[u8]) -> Option<(usize, u16)> {
    let first = *bytes.first_chunk::<2>()?;
    if CISCO_HDLC.contains(&first) {
        let protocol = bytes.get(2..)?.first_chunk()?;
        return Some((4, u16::from_be_bytes(*protocol)));
    }
    let at = if first == PPP_IN_HDLC { 2 } else { 0 };
    let &[high, low] = bytes.get(at..)?.first_chunk()?;
    // A protocol of one byte is odd, and the first byte of one of two is even.
    let (len, protocol) = match high & 1 {
        1 => (1, u16::from(high)),
        _ => (2, u16::from_be_bytes([high, low])),
    };
    let known = PPP_PROTOCOLS.iter().find(|(of_ppp, _)| *of_ppp == protocol);
    Some((at + len, known.map_or(protocol, |(_, ethertype)| *ethertype)))
}
