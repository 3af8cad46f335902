//! IPv4 (RFC 791).

use core::net::Ipv4Addr;
use core::ops::Range;

use crate::{checksum, u16_at};

/// The ethertype.
pub const ETHERTYPE: u16 = 0x0800;
/// Length of the header without options.
pub const LEN: usize = 20;
/// Where the checksum is in the header.
pub const CHECKSUM: Range<usize> = 10..12;
/// Where both addresses are in the header.
pub const ADDRESSES: Range<usize> = 12..20;

/// The header. Of the flags and the type of service nothing is kept; they are written as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the header in bytes, options included: 20, 24, … 60.
    pub len: usize,
    /// Length of header and payload in bytes.
    pub total_len: u16,
    /// What fragments of one packet have in common.
    pub id: u16,
    /// Where the payload was in the packet before it was cut into fragments, in units of 8 bytes.
    /// Only the first fragment, at 0, has a transport header.
    pub fragment_offset: u16,
    /// Routers that the packet may still pass.
    pub time_to_live: u8,
    /// The protocol that follows.
    pub protocol: u8,
    /// Where the packet comes from.
    pub source: Ipv4Addr,
    /// Where it goes.
    pub destination: Ipv4Addr,
}

impl Header {
    /// Reads the header. Fails for one that says it is shorter than a header can be.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<LEN>()?;
        let len = usize::from(header[0] & 0x0f) * 4;
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        (len >= LEN).then(|| Self {
            len,
            total_len: u16_at(header, 2),
            id: u16_at(header, 4),
            fragment_offset: u16_at(header, 6) & 0x1fff,
            time_to_live: header[8],
            protocol: header[9],
            source: Ipv4Addr::new(s0, s1, s2, s3),
            destination: Ipv4Addr::new(d0, d1, d2, d3),
        })
    }

    /// Writes the header with its checksum, for which options must be in their place already.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let header = &mut bytes[..self.len];
        header[0] = 0x40 | (self.len / 4) as u8;
        header[1] = 0;
        header[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        header[4..6].copy_from_slice(&self.id.to_be_bytes());
        header[6..8].copy_from_slice(&self.fragment_offset.to_be_bytes());
        header[8] = self.time_to_live;
        header[9] = self.protocol;
        header[CHECKSUM].fill(0);
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..20].copy_from_slice(&self.destination.octets());
        let checksum = checksum::of_sum(checksum::sum(header));
        header[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_and_its_checksum_is_right(
            words in 5..=15usize, total_len: u16, id: u16, fragment_offset in 0..1u16 << 13,
            time_to_live: u8, protocol: u8, source: u32, destination: u32, options: [u8; 40],
        ) {
            let header = Header {
                len: 4 * words,
                total_len,
                id,
                fragment_offset,
                time_to_live,
                protocol,
                source: source.into(),
                destination: destination.into(),
            };
            let mut bytes = [0xee; 60];
            bytes[LEN..].copy_from_slice(&options);
            header.emit(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes), Some(header));
            // A header with a right checksum sums to all ones.
            prop_assert_eq!(checksum::fold(checksum::sum(&bytes[..header.len])), 0xffff);
            prop_assert_eq!(&bytes[LEN..], &options);
            prop_assert_eq!(Header::parse(&bytes[..LEN - 1]), None);
            bytes[0] = 0x44;
            prop_assert_eq!(Header::parse(&bytes), None);
        }
    }
}
