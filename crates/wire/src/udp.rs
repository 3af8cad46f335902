//! UDP (RFC 768).

use core::ops::Range;

use crate::{checksum, u16_at};

/// The number of the protocol in IP headers.
pub const PROTOCOL: u8 = 17;
/// Length of the header.
pub const LEN: usize = 8;
/// Where the checksum is in the header.
pub const CHECKSUM: Range<usize> = 6..8;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Port where the packet comes from.
    pub source: u16,
    /// Port where it goes.
    pub destination: u16,
    /// Length of header and payload in bytes. What follows is padding.
    pub len: u16,
    /// The checksum; 0 if the sender worked out none, which IPv6 does not permit.
    pub checksum: u16,
}

impl Header {
    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<LEN>()?;
        Some(Self {
            source: u16_at(header, 0),
            destination: u16_at(header, 2),
            len: u16_at(header, 4),
            checksum: u16_at(header, 6),
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&self.source.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.len.to_be_bytes());
        bytes[CHECKSUM].copy_from_slice(&self.checksum.to_be_bytes());
    }
}

/// The checksum of a packet. `sum` is that of both IP addresses, the UDP header with its checksum
/// as zero, and the payload; length and protocol of the pseudo header are added here (RFC 8200,
/// section 8.1). A checksum of zero is written as all ones, as zero stands for none.
#[inline]
pub fn checksum(sum: u32, len: u16) -> u16 {
    never_none(checksum::of_sum(sum + u32::from(len) + u32::from(PROTOCOL)))
}

/// The checksum after words of the payload changed, see [`checksum::update`]. None stays none.
#[inline]
pub fn update(checksum: u16, before: u16, after: u16) -> u16 {
    if checksum == 0 { 0 } else { never_none(checksum::update(checksum, before, after)) }
}

#[inline]
fn never_none(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_cut_header_is_not() {
        let header = Header { source: 1024, destination: 53, len: 26, checksum: 0xabcd };
        let mut bytes = [0; LEN];
        header.emit(&mut bytes);
        assert_eq!(bytes, [4, 0, 0, 53, 0, 26, 0xab, 0xcd]);
        assert_eq!(Header::parse(&bytes), Some(header));
        assert_eq!(Header::parse(&bytes[..7]), None);
    }

    #[test]
    fn a_checksum_of_zero_is_all_ones_and_none_stays_none() {
        // All words, with length 8 and protocol 17, sum to ffff.
        assert_eq!(checksum(0xffff - 8 - 17, 8), 0xffff);
        assert_eq!(checksum(0, 8), !25);
        assert_eq!(update(0, 1, 2), 0);
        // The complement of fffe is 1; 1 - 1 + 0 folds to zero words, 1 + fffe to ffff.
        assert_eq!(update(0xfffe, 1, 0xffff), 0xffff);
    }
}
