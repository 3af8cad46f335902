//! All layers of a frame: where its headers are, behind VLAN tags, IPv4 options and IPv6 extension
//! headers.

use crate::link::Link;
use crate::{ethernet, ipv4, ipv6, udp, vlan};

/// Where the UDP header begins in the usual frame, see [`is_plain_udp`].
pub const PLAIN_UDP: usize = ethernet::LEN + ipv4::LEN;

/// The version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Where the headers of an IP packet begin in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// The version of IP.
    pub version: Version,
    /// The IP header.
    pub network: usize,
    /// The transport protocol and its header, which may be cut off; `None` in a fragment that is
    /// not the first, and where the headers before it are cut off or impossible.
    pub transport: Option<(u8, usize)>,
}

impl Layers {
    /// Finds the IP header behind any number of VLAN tags, and the transport header behind it, in bytes
    /// that begin as `link` says. `None` if the frame is not of IP.
    pub fn of(frame: &[u8], link: Link) -> Option<Self> {
        let (mut network, mut ethertype) = match link {
            Link::Ethernet => (ethernet::LEN, ethernet::Header::parse(frame)?.ethertype),
            Link::Network(protocol) => (0, protocol),
        };
        while vlan::is_tag(ethertype) {
            ethertype = vlan::Header::parse(&frame[network..])?.ethertype;
            network += vlan::LEN;
        }
        let packet = &frame[network..];
        let (version, transport) = match ethertype {
            ipv4::ETHERTYPE => {
                let header = ipv4::Header::parse(packet);
                let first = header.filter(|header| header.fragment_offset == 0);
                (Version::V4, first.map(|header| (header.protocol, header.len)))
            }
            ipv6::ETHERTYPE => (Version::V6, ipv6::transport(packet)),
            _ => return None,
        };
        let transport = transport.map(|(protocol, at)| (protocol, network + at));
        Some(Self { version, network, transport })
    }
}

/// Whether a frame is untagged IPv4 without options with a whole UDP header at [`PLAIN_UDP`]: the
/// usual case, seen in one glance.
#[inline]
pub fn is_plain_udp(frame: &[u8]) -> bool {
    frame.first_chunk::<{ PLAIN_UDP + udp::LEN }>().is_some_and(|head| {
        head[12..15] == [0x08, 0x00, 0x45]
            && head[23] == udp::PROTOCOL
            && head[20] & 0x1f == 0
            && head[21] == 0
    })
}

/// Where the UDP payload of a frame begins, at most at its end, in bytes that begin as `link` says;
/// `None` for any other frame.
#[inline]
pub fn udp_payload(frame: &[u8], link: Link) -> Option<usize> {
    if link == Link::Ethernet && is_plain_udp(frame) {
        return Some(PLAIN_UDP + udp::LEN);
    }
    match Layers::of(frame, link)?.transport? {
        (udp::PROTOCOL, at) => Some(at + udp::LEN).filter(|&payload| payload <= frame.len()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{moonsniff, tcp};
    use proptest::prelude::*;
    use std::vec::Vec;

    const ID: u32 = 0x0102_0304;

    /// A frame with these VLAN tags, which carries a network header, a UDP header and the id.
    fn frame(tags: &[u16], ethertype: u16, network: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from([2; ethernet::ADDRESSES_LEN]);
        for &tag in tags {
            bytes.extend(vlan::tag(tag, 5));
        }
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend(network);
        bytes.extend([4, 0, 0, 53, 0, 13, 0, 0]);
        bytes.extend([4, 3, 2, 1, 0x55]);
        bytes
    }

    fn v4(options: usize, change: fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut header = Vec::from([0; ipv4::LEN]);
        header.resize(ipv4::LEN + options, 1);
        header[0] = 0x45 + (options / 4) as u8;
        header[9] = udp::PROTOCOL;
        change(&mut header);
        header
    }

    fn v6(next: u8, extensions: &[u8]) -> Vec<u8> {
        let mut header = Vec::from([0; ipv6::LEN]);
        header[0] = 0x60;
        header[6] = next;
        header.extend(extensions);
        header
    }

    #[test]
    fn ids_are_found_behind_any_headers() {
        let options = [udp::PROTOCOL, 0, 0, 0, 0, 0, 0, 0];
        let fragment = [udp::PROTOCOL, 0, 0, 1, 0, 0, 0, 9];
        for (tags, ethertype, network) in [
            (&[][..], ipv4::ETHERTYPE, v4(0, |_| {})),
            (&[], ipv4::ETHERTYPE, v4(40, |_| {})),
            // The first fragment of more.
            (&[], ipv4::ETHERTYPE, v4(0, |header| header[6] = 0x20)),
            (&[0x8100], ipv4::ETHERTYPE, v4(0, |_| {})),
            (&[0x88a8, 0x8100, 0x9100, 0x8100], ipv4::ETHERTYPE, v4(4, |_| {})),
            (&[], ipv6::ETHERTYPE, v6(udp::PROTOCOL, &[])),
            (&[0x8100], ipv6::ETHERTYPE, v6(0, &options)),
            (&[], ipv6::ETHERTYPE, v6(60, &options)),
            (&[], ipv6::ETHERTYPE, v6(44, &fragment)),
        ] {
            let bytes = frame(tags, ethertype, &network);
            assert_eq!(moonsniff::id(&bytes), Some(ID), "{tags:x?} {ethertype:#x} {network:?}");
            assert_eq!(udp_payload(&bytes, Link::Ethernet), Some(bytes.len() - moonsniff::LEN));
            if tags.is_empty() {
                let packet = &bytes[ethernet::LEN..];
                let payload = udp_payload(packet, Link::Network(ethertype));
                assert_eq!(payload, Some(packet.len() - moonsniff::LEN));
            }
            // A frame that is cut has no id, wherever it is cut.
            for len in 0..bytes.len() {
                assert_eq!(moonsniff::id(&bytes[..len]), None, "cut at {len}");
            }
        }
    }

    #[test]
    fn other_frames_have_no_udp_payload() {
        for (ethertype, network) in [
            (0x0806, v4(0, |_| {})),
            (ipv4::ETHERTYPE, v4(0, |header| header[9] = tcp::PROTOCOL)),
            (ipv4::ETHERTYPE, v4(0, |header| header[0] = 0x44)),
            (ipv4::ETHERTYPE, v4(0, |header| header[7] = 1)),
            (ipv4::ETHERTYPE, v4(4, |header| header[6] = 0x10)),
            (ipv6::ETHERTYPE, v6(tcp::PROTOCOL, &[])),
            (ipv6::ETHERTYPE, v6(44, &[udp::PROTOCOL, 0, 0, 8, 0, 0, 0, 9])),
        ] {
            let bytes = frame(&[], ethertype, &network);
            assert_eq!(udp_payload(&bytes, Link::Ethernet), None, "{ethertype:#x} {network:?}");
        }
    }

    #[test]
    fn headers_of_other_transports_are_found() {
        let bytes = frame(&[0x8100], ipv4::ETHERTYPE, &v4(0, |header| header[9] = tcp::PROTOCOL));
        let transport = Some((tcp::PROTOCOL, 38));
        assert_eq!(
            Layers::of(&bytes, Link::Ethernet),
            Some(Layers { version: Version::V4, network: 18, transport })
        );
        let cut = Layers::of(&bytes[..30], Link::Ethernet).expect("still IPv4");
        assert_eq!((cut.network, cut.transport), (18, None));
    }

    proptest! {
        #[test]
        fn the_glance_sees_what_the_walk_finds(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120), shape in 0..4usize,
        ) {
            // Random bytes are hardly ever of IP.
            let starts: [&[u8]; 4] = [
                &[],
                &[0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, 17],
                &[0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 0, 17],
                &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 44],
            ];
            for (byte, &start) in bytes.iter_mut().skip(12).zip(starts[shape]) {
                *byte = start;
            }
            if is_plain_udp(&bytes) {
                let transport = Some((udp::PROTOCOL, PLAIN_UDP));
                let layers = Layers { version: Version::V4, network: ethernet::LEN, transport };
                prop_assert_eq!(Layers::of(&bytes, Link::Ethernet), Some(layers));
            }
            if let Some(payload) = udp_payload(&bytes, Link::Ethernet) {
                prop_assert!(payload <= bytes.len());
            }
        }
    }
}
