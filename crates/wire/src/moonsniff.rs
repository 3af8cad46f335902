//! MoonSniff's identification of packets: at the start of the UDP payload a little-endian id, then a
//! byte that tells measured packets from others.

use crate::frame;
use crate::link::Link;

/// Length of id and type byte.
pub const LEN: usize = 5;

/// The type byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Part of the measurement: taps stamp it.
    Measured = 0x55,
    /// Sent before the measurement: taps count it as other traffic.
    WarmUp = 0x00,
}

/// Id and type byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The id.
    pub id: u32,
    /// The type byte, see [`Kind`]; in traffic of others it may be anything.
    pub kind: u8,
}

impl Header {
    /// Reads id and type byte at the start of a UDP payload.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let &[a, b, c, d, kind] = payload.first_chunk::<LEN>()?;
        Some(Self { id: u32::from_le_bytes([a, b, c, d]), kind })
    }

    /// Writes id and type byte to the start of a UDP payload.
    #[inline]
    pub fn emit(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.id.to_le_bytes());
        payload[4] = self.kind;
    }

    /// The id, if the packet is part of a measurement.
    #[inline]
    pub fn measured(self) -> Option<u32> {
        (self.kind == Kind::Measured as u8).then_some(self.id)
    }
}

/// The id of a frame that holds a measured packet; `None` for any other frame.
#[inline]
pub fn id(frame: &[u8]) -> Option<u32> {
    Header::parse(&frame[frame::udp_payload(frame, Link::Ethernet)?..])?.measured()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_measured_packets_have_an_id() {
        for (kind, id) in [(Kind::Measured, Some(0x0102_0304)), (Kind::WarmUp, None)] {
            let header = Header { id: 0x0102_0304, kind: kind as u8 };
            let mut payload = [0; LEN + 1];
            header.emit(&mut payload);
            assert_eq!(payload[..4], [4, 3, 2, 1]);
            assert_eq!(Header::parse(&payload), Some(header));
            assert_eq!(header.measured(), id);
            assert_eq!(Header::parse(&payload[..4]), None);
        }
    }
}
