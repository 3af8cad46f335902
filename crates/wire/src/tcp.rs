//! TCP (RFC 9293): its header, without options.

use core::ops::Range;

use crate::u16_at;

/// The number of the protocol in IP headers.
pub const PROTOCOL: u8 = 6;
/// Length of the header without options.
pub const LEN: usize = 20;
/// Where the checksum is in the header.
pub const CHECKSUM: Range<usize> = 16..18;

/// Flags of the header.
pub mod flags {
    /// The sender has sent all.
    pub const FIN: u8 = 0x01;
    /// A connection begins.
    pub const SYN: u8 = 0x02;
    /// A connection is refused, or ends at once.
    pub const RST: u8 = 0x04;
    /// The acknowledged number counts.
    pub const ACK: u8 = 0x10;
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Port where the segment comes from.
    pub source: u16,
    /// Port where it goes.
    pub destination: u16,
    /// The number of its first byte.
    pub sequence: u32,
    /// The number of the byte that the sender awaits next.
    pub acknowledged: u32,
    /// Length of the header with its options, in bytes.
    pub len: usize,
    /// [Flags](flags).
    pub flags: u8,
}

impl Header {
    /// Reads the header. The options may be cut off.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<LEN>()?;
        let word =
            |at: usize| u32::from(u16_at(header, at)) << 16 | u32::from(u16_at(header, at + 2));
        let len = usize::from(header[12] >> 4) * 4;
        (len >= LEN).then_some(Self {
            source: u16_at(header, 0),
            destination: u16_at(header, 2),
            sequence: word(4),
            acknowledged: word(8),
            len,
            flags: header[13],
        })
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_and_a_cut_or_impossible_one_is_not() {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&[0x12, 0x34, 0, 80]);
        bytes[4..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        bytes[12..14].copy_from_slice(&[0x80, flags::SYN | flags::ACK]);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.source, header.destination, header.len), (0x1234, 80, 32));
        assert_eq!((header.sequence, header.acknowledged), (0x0102_0304, 0x0506_0708));
        assert!(header.has(flags::SYN) && header.has(flags::ACK) && !header.has(flags::RST));
        assert_eq!(Header::parse(&bytes[..19]), None);
        bytes[12] = 0x40;
        assert_eq!(Header::parse(&bytes), None);
    }
}
