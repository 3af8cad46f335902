//! Ethernet frames, without the preamble and usually without the frame check sequence (FCS).

use crate::u16_at;

/// A hardware address.
pub type Mac = [u8; 6];

/// Length of the header.
pub const LEN: usize = 14;
/// Length of both addresses, behind which VLAN tags are put in.
pub const ADDRESSES_LEN: usize = 12;
/// Length of the frame check sequence, which the interface adds.
pub const FCS_LEN: usize = 4;
/// The smallest frame, FCS included.
pub const MIN_SIZE: usize = 64;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where the frame goes.
    pub destination: Mac,
    /// Where it comes from.
    pub source: Mac,
    /// The protocol that follows, a VLAN tag's included.
    pub ethertype: u16,
}

impl Header {
    /// Reads the header at the start of a frame.
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let header = frame.first_chunk::<LEN>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *header;
        Some(Self {
            destination: [d0, d1, d2, d3, d4, d5],
            source: [s0, s1, s2, s3, s4, s5],
            ethertype: u16_at(header, 12),
        })
    }

    /// Writes the header to the start of a frame.
    #[inline]
    pub fn emit(&self, frame: &mut [u8]) {
        frame[..6].copy_from_slice(&self.destination);
        frame[6..12].copy_from_slice(&self.source);
        frame[12..14].copy_from_slice(&self.ethertype.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_cut_header_is_not() {
        let header = Header { destination: [1, 2, 3, 4, 5, 6], source: [7; 6], ethertype: 0x86dd };
        let mut frame = [0; LEN + 1];
        header.emit(&mut frame);
        assert_eq!(frame, [1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 7, 0x86, 0xdd, 0]);
        assert_eq!(Header::parse(&frame), Some(header));
        assert_eq!(Header::parse(&frame[..LEN - 1]), None);
    }
}
