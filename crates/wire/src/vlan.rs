//! VLAN tags (IEEE 802.1Q), also stacked.

use crate::u16_at;

/// The ethertype of a VLAN tag.
pub const ETHERTYPE: u16 = 0x8100;
/// The ethertype of an outer tag (IEEE 802.1ad).
pub const OUTER_ETHERTYPE: u16 = 0x88a8;
/// The ethertype that outer tags had before 802.1ad; some switches still write it.
const OLD_OUTER_ETHERTYPE: u16 = 0x9100;
/// Length of the header.
pub const LEN: usize = 4;
/// The highest VLAN id that is not reserved.
pub const MAX_ID: u16 = 4094;

/// What follows the ethertype of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Priority, drop eligibility and, in the low 12 bits, the VLAN id.
    pub control: u16,
    /// The protocol that follows, which may be another tag.
    pub ethertype: u16,
}

/// Whether a tag follows this ethertype.
#[inline]
pub fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ETHERTYPE | OUTER_ETHERTYPE | OLD_OUTER_ETHERTYPE)
}

/// A tag as it is put into a frame behind both addresses: its ethertype and its control word.
#[inline]
pub fn tag(ethertype: u16, control: u16) -> [u8; LEN] {
    let ([a, b], [c, d]) = (ethertype.to_be_bytes(), control.to_be_bytes());
    [a, b, c, d]
}

impl Header {
    /// Reads the header that follows a tag's ethertype.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<LEN>()?;
        Some(Self { control: u16_at(header, 0), ethertype: u16_at(header, 2) })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&self.control.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.ethertype.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_cut_header_is_not() {
        let header = Header { control: 0x6005, ethertype: 0x0800 };
        let mut bytes = [0; LEN];
        header.emit(&mut bytes);
        assert_eq!(bytes, [0x60, 0x05, 0x08, 0x00]);
        assert_eq!(Header::parse(&bytes), Some(header));
        assert_eq!(Header::parse(&bytes[..3]), None);
        assert_eq!(tag(OUTER_ETHERTYPE, 0x6005), [0x88, 0xa8, 0x60, 0x05]);
    }
}
