//! IPv6 (RFC 8200) and its extension headers.

use core::net::Ipv6Addr;
use core::ops::Range;

use crate::u16_at;

/// The ethertype.
pub const ETHERTYPE: u16 = 0x86dd;
/// Length of the header.
pub const LEN: usize = 40;
/// Where both addresses are in the header, which checksums of the transport header include.
pub const ADDRESSES: Range<usize> = 8..40;

const HOP_BY_HOP_OPTIONS: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// The header. Of traffic class and flow label nothing is kept; they are written as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes that follow the header, extension headers included.
    pub payload_len: u16,
    /// The header that follows: of a transport protocol, or an extension header.
    pub next_header: u8,
    /// Routers that the packet may still pass.
    pub hop_limit: u8,
    /// Where the packet comes from.
    pub source: Ipv6Addr,
    /// Where it goes.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<LEN>()?;
        let address = |at: usize| {
            let octets: Option<&[u8; 16]> = header[at..].first_chunk();
            octets.map(|&octets| Ipv6Addr::from(octets))
        };
        Some(Self {
            payload_len: u16_at(header, 4),
            next_header: header[6],
            hop_limit: header[7],
            source: address(8)?,
            destination: address(24)?,
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        bytes[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The header that follows.
    pub next_header: u8,
    /// Its length in bytes.
    pub len: usize,
    /// Of a fragment: what it has in common with the others, and where its payload was, in units of
    /// 8 bytes. A packet that is the only fragment of itself (RFC 6946) is none.
    pub fragment: Option<(u32, u16)>,
}

impl Extension {
    /// Whether the protocol of this number is an extension header.
    #[inline]
    pub fn is(protocol: u8) -> bool {
        matches!(protocol, HOP_BY_HOP_OPTIONS | ROUTING | FRAGMENT | DESTINATION_OPTIONS)
    }

    /// Reads the extension header of this protocol. `None` if it is cut off.
    pub fn parse(protocol: u8, bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<8>()?;
        let [next_header, len, ..] = *header;
        if protocol == FRAGMENT {
            let [.., a, b, c, d] = *header;
            let fragment = (u32::from_be_bytes([a, b, c, d]), u16_at(header, 2) >> 3);
            let fragment = (u16_at(header, 2) & !0x6 != 0).then_some(fragment);
            return Some(Self { next_header, len: 8, fragment });
        }
        // The length is in units of 8 bytes, of which the first does not count.
        Some(Self { next_header, len: 8 * (usize::from(len) + 1), fragment: None })
    }
}

/// The transport protocol of a packet and where its header begins, behind all extension headers
/// (RFC 8200, section 4). `None` if they are cut off, or in a fragment that is not the first.
pub fn transport(packet: &[u8]) -> Option<(u8, usize)> {
    let mut protocol = Header::parse(packet)?.next_header;
    let mut at = LEN;
    while Extension::is(protocol) {
        let extension = Extension::parse(protocol, packet.get(at..)?)?;
        if extension.fragment.is_some_and(|(_, offset)| offset != 0) {
            return None;
        }
        protocol = extension.next_header;
        at += extension.len;
    }
    Some((protocol, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn packet(extensions: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::from([0; LEN]);
        let header = Header {
            payload_len: 0,
            next_header: HOP_BY_HOP_OPTIONS,
            hop_limit: 64,
            source: Ipv6Addr::LOCALHOST,
            destination: Ipv6Addr::UNSPECIFIED,
        };
        header.emit(&mut bytes);
        bytes.extend(extensions.concat());
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            payload_len: u16, next_header: u8, hop_limit: u8, source: u128, destination: u128,
        ) {
            let header = Header {
                payload_len,
                next_header,
                hop_limit,
                source: source.into(),
                destination: destination.into(),
            };
            let mut bytes = [0xee; LEN];
            header.emit(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes), Some(header));
            prop_assert_eq!(&bytes[..4], &[0x60, 0, 0, 0]);
            prop_assert_eq!(&bytes[ADDRESSES][..16], &source.to_be_bytes());
            prop_assert_eq!(&bytes[ADDRESSES][16..], &destination.to_be_bytes());
            prop_assert_eq!(Header::parse(&bytes[..LEN - 1]), None);
        }

        #[test]
        fn any_extension_headers_come_to_an_end(bytes in proptest::collection::vec(0..61u8, 0..300)) {
            if let Some((_, at)) = transport(&bytes) {
                prop_assert!(at >= LEN);
            }
        }
    }

    #[test]
    fn extension_headers_are_followed_as_far_as_they_reach() {
        let hop_by_hop = [ROUTING, 0, 0, 0, 0, 0, 0, 0];
        let routing = [DESTINATION_OPTIONS, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let options = [FRAGMENT, 0, 0, 0, 0, 0, 0, 0];
        let fragment = |offset: u8| [udp::PROTOCOL, 0, 0, offset << 3 | 1, 0, 0, 0, 9];
        let first = packet(&[&hop_by_hop, &routing, &options, &fragment(0)]);
        assert_eq!(transport(&first), Some((udp::PROTOCOL, LEN + 40)));
        let later = packet(&[&hop_by_hop, &routing, &options, &fragment(1)]);
        assert_eq!(transport(&later), None);
        for len in LEN..LEN + 36 {
            assert_eq!(transport(&first[..len]), None, "cut at {len}");
        }
    }
}
