//! Link types, <https://www.tcpdump.org/linktypes.html>: what packets of each begin with.
//!
//! Whatever stands in front of the network's header and is not Ethernet is taken off: pseudo-headers
//! of the capturing program, and links from point to point.

use tailtap_wire::link::Link;
use tailtap_wire::{ipv4, ipv6};

use super::erf;
use super::opened::{MPLS, Opened, hdlc};

/// LINKTYPE_ETHERNET of pcap and pcapng.
const ETHERNET: u32 = 1;

const PPPOE_SESSION: u16 = 0x8864;

/// Cooked captures of Linux: the first has a type of packet, an address and the ethertype; the second
/// begins with the ethertype and has the number of the interface, too.
const COOKED_LEN: usize = 16;
const COOKED_2_LEN: usize = 20;
/// The type of packets that this machine sent.
const OUTGOING: u16 = 4;

/// What systems call IP and IPv6, which differs for the latter: Linux, NetBSD, FreeBSD, macOS.
const FAMILY_LEN: usize = 4;
const FAMILY_IPV4: u32 = 2;
const FAMILIES_IPV6: [u32; 4] = [10, 24, 28, 30];

/// A link type that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkType {
    Ethernet,
    /// One network protocol, by its ethertype.
    Network(u16),
    /// IPv4 or IPv6, as the first bits say.
    Raw,
    /// The number of an address family, in either byte order.
    Family,
    Cooked,
    Cooked2,
    /// PPP, whether in frames like HDLC's or not, or Cisco's HDLC.
    Hdlc,
    /// A byte that says the direction, then PPP.
    HdlcWithDirection,
    Erf,
}

impl LinkType {
    /// The link type of this number, if it is read.
    pub fn of(number: u32) -> Option<Self> {
        Some(match number {
            ETHERNET => Self::Ethernet,
            0 | 108 => Self::Family,
            9 | 50 | 104 => Self::Hdlc,
            12 | 14 | 101 => Self::Raw,
            51 => Self::Network(PPPOE_SESSION),
            113 => Self::Cooked,
            197 => Self::Erf,
            204 => Self::HdlcWithDirection,
            219 => Self::Network(MPLS),
            228 => Self::Network(ipv4::ETHERTYPE),
            229 => Self::Network(ipv6::ETHERTYPE),
            276 => Self::Cooked2,
            _ => return None,
        })
    }

    /// The packet in a record of this link type; `None` where what stands in front of it is cut off or
    /// names no protocol.
    pub fn open(self, bytes: &[u8], wire_len: u32) -> Option<Opened<'_>> {
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let behind = |header, protocol| Opened::behind(bytes, wire_len, header, protocol);
        match self {
            Self::Ethernet => Some(Opened::plain(bytes, wire_len, Link::Ethernet)),
            Self::Network(protocol) => Some(behind(0, protocol)),
            Self::Raw => Some(Opened::plain(bytes, wire_len, Link::of_ip(bytes)?)),
            Self::Family => {
                let family = u32::from_be_bytes(*bytes.first_chunk::<FAMILY_LEN>()?);
                match family.min(family.swap_bytes()) {
                    FAMILY_IPV4 => Some(behind(FAMILY_LEN, ipv4::ETHERTYPE)),
                    family if FAMILIES_IPV6.contains(&family) => {
                        Some(behind(FAMILY_LEN, ipv6::ETHERTYPE))
                    }
                    _ => None,
                }
            }
            Self::Cooked => {
                bytes.get(..COOKED_LEN)?;
                let outgoing = Some(half(0) == OUTGOING);
                Some(Opened { outgoing, ..behind(COOKED_LEN, half(14)) })
            }
            Self::Cooked2 => {
                bytes.get(..COOKED_2_LEN)?;
                let interface = Some(u32::from(half(4)) << 16 | u32::from(half(6)));
                let outgoing = Some(u16::from(bytes[10]) == OUTGOING);
                Some(Opened { interface, outgoing, ..behind(COOKED_2_LEN, half(0)) })
            }
            Self::Hdlc => {
                let (header, protocol) = hdlc(bytes)?;
                Some(behind(header, protocol))
            }
            Self::HdlcWithDirection => {
                let (&direction, rest) = bytes.split_first()?;
                let (header, protocol) = hdlc(rest)?;
                Some(Opened { outgoing: Some(direction != 0), ..behind(1 + header, protocol) })
            }
            Self::Erf => erf::Record::parse(bytes)?.open(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first bytes of a packet of IPv4.
    const IP: [u8; 4] = [0x45, 0, 0, 20];

    fn open(number: u32, head: &[u8]) -> Option<(Link, Option<u32>, Option<bool>)> {
        let bytes = [head, &IP].concat();
        let opened = LinkType::of(number).expect("a link type").open(&bytes, 1000)?;
        assert_eq!((opened.bytes, opened.wire_len), (&IP[..], 1000 - head.len() as u32));
        Some((opened.link, opened.interface, opened.outgoing))
    }

    #[test]
    fn every_header_says_what_follows_it() {
        const V4: Link = Link::Network(ipv4::ETHERTYPE);
        const V6: Link = Link::Network(ipv6::ETHERTYPE);
        let cooked = |kind: u8, protocol: [u8; 2]| {
            [&[0, kind, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0][..], &protocol].concat()
        };
        let cooked_2 = |kind: u8, protocol: [u8; 2]| {
            [&protocol[..], &[0, 0, 0, 1, 0, 9, 0, 1, kind, 6, 2, 2, 2, 2, 2, 2, 0, 0]].concat()
        };
        for (number, head, expected) in [
            (0, vec![2, 0, 0, 0], (V4, None, None)),
            (0, vec![0, 0, 0, 30], (V6, None, None)),
            (108, vec![0, 0, 0, 24], (V6, None, None)),
            (9, vec![0xff, 3, 0, 0x21], (V4, None, None)),
            (9, vec![0x21], (V4, None, None)),
            (50, vec![0xff, 3, 0, 0x57], (V6, None, None)),
            (50, vec![0x8f, 0, 0x86, 0xdd], (V6, None, None)),
            (9, vec![0xc0, 0x21], (Link::Network(0xc021), None, None)),
            (101, vec![], (V4, None, None)),
            (229, vec![], (V6, None, None)),
            (113, cooked(0, [8, 0]), (V4, None, Some(false))),
            (113, cooked(4, [8, 6]), (Link::Network(0x0806), None, Some(true))),
            (276, cooked_2(4, [0x86, 0xdd]), (V6, Some(0x0001_0009), Some(true))),
            (276, cooked_2(3, [8, 0]), (V4, Some(0x0001_0009), Some(false))),
            (204, vec![1, 0xff, 3, 0, 0x21], (V4, None, Some(true))),
            (204, vec![0, 0, 0x21], (V4, None, Some(false))),
            (1, vec![], (Link::Ethernet, None, None)),
        ] {
            assert_eq!(open(number, &head), Some(expected), "{number} {head:x?}");
        }
        assert_eq!(open(0, &[7, 0, 0, 0]), None);
        assert_eq!(LinkType::of(127), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_opened_or_not(
            bytes in proptest::collection::vec(any::<u8>(), 0..80), wire_len in any::<u32>(),
        ) {
            for link in (0..300).filter_map(LinkType::of) {
                if let Some(opened) = link.open(&bytes, wire_len) {
                    prop_assert!(opened.bytes.len() <= bytes.len());
                    prop_assert!(opened.wire_len <= wire_len.max(u16::MAX.into()));
                }
            }
        }
    }
}
