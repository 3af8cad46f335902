//! The stamp file: what a tap writes, one fixed-size record for each packet.
//!
//! Everything is little-endian. A header of [`HEADER_LEN`] bytes:
//!
//! | offset | size | content                                                           |
//! |-------:|-----:|-------------------------------------------------------------------|
//! |      0 |    8 | [`MAGIC`]                                                         |
//! |      8 |    2 | version, 1                                                        |
//! |     10 |    2 | record size in bytes, 16                                          |
//! |     12 |    4 | clock ([`Clock`])                                                 |
//! |     16 |    8 | packets with an id that the tap saw                               |
//! |     24 |    8 | of these, stored in this file                                     |
//! |     32 |    8 | of these, lost for lack of room                                   |
//! |     40 |    8 | packets without an id (warm-up, foreign traffic), never stored    |
//! |     48 |   16 | name of the link, UTF-8, padded with NUL                          |
//!
//! The four counts are `u64::MAX` until the tap has closed the file. Records of [`RECORD_LEN`]
//! bytes follow: time in nanoseconds (u64), packet id (u32), frame length without FCS (u16),
//! flags (u16, 0).

use serde::{Deserialize, Serialize};

/// First bytes of every stamp file. The byte above 127 and the line feed catch text transfers.
pub const MAGIC: [u8; 8] = *b"\x89TTSTMP\n";
/// Size of the header in bytes.
pub const HEADER_LEN: usize = 64;
/// Size of a record in bytes.
pub const RECORD_LEN: usize = 16;
/// The format version that this code reads and writes.
pub const VERSION: u16 = 1;

/// The clock that the times of a file were read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Clock {
    /// Not stated.
    Unknown = 0,
    /// The kernel's CLOCK_MONOTONIC.
    Monotonic = 1,
    /// The clock of a network interface.
    Hardware = 2,
    /// CLOCK_REALTIME, nanoseconds since 1970.
    Realtime = 3,
}

impl Clock {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Monotonic => "monotonic",
            Self::Hardware => "hardware",
            Self::Realtime => "realtime",
        }
    }

    pub(crate) fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Monotonic,
            2 => Self::Hardware,
            3 => Self::Realtime,
            _ => Self::Unknown,
        }
    }
}

/// What a tap counted on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapCounts {
    /// Packets with an id that the tap saw.
    pub seen: u64,
    /// Of these, written to the file.
    pub stored: u64,
    /// Of these, not written because the buffer was full.
    pub lost: u64,
    /// Packets without an id.
    pub other: u64,
}

/// The header of a stamp file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Clock of the times.
    pub clock: Clock,
    /// The tap's counts; `None` until the file was closed.
    pub counts: Option<TapCounts>,
    /// Name of the link, at most 16 bytes of UTF-8.
    pub link: String,
}

impl Header {
    /// The header as it stands in the file. A longer link name is cut at 16 bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0u8; HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(RECORD_LEN as u16).to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.clock as u32).to_le_bytes());
        let counts = self.counts.map_or([u64::MAX; 4], |c| [c.seen, c.stored, c.lost, c.other]);
        for (slot, count) in bytes[16..48].chunks_exact_mut(8).zip(counts) {
            slot.copy_from_slice(&count.to_le_bytes());
        }
        let name = self.link.as_bytes();
        let len = name.len().min(16);
        bytes[48..48 + len].copy_from_slice(&name[..len]);
        bytes
    }

    /// Reads a header. `None` when the magic, version or record size are not this format's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_LEN] = bytes.get(..HEADER_LEN)?.try_into().ok()?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if bytes[..8] != MAGIC || u16_at(8) != VERSION || u16_at(10) != RECORD_LEN as u16 {
            return None;
        }
        let u64_at =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let name = &bytes[48..64];
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        Some(Self {
            clock: Clock::from_code(u32::from_le_bytes(
                bytes[12..16].try_into().expect("four bytes"),
            )),
            counts: (u64_at(16) != u64::MAX).then(|| TapCounts {
                seen: u64_at(16),
                stored: u64_at(24),
                lost: u64_at(32),
                other: u64_at(40),
            }),
            link: String::from_utf8_lossy(&name[..end]).into_owned(),
        })
    }
}

/// One stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Time in nanoseconds.
    pub time_ns: u64,
    /// Packet id.
    pub id: u32,
    /// Frame length in bytes, without FCS.
    pub frame_len: u16,
}

impl Stamp {
    /// The record as it stands in the file.
    pub fn encode(self) -> [u8; RECORD_LEN] {
        let mut bytes = [0u8; RECORD_LEN];
        bytes[..8].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.id.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.frame_len.to_le_bytes());
        bytes
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8; RECORD_LEN]) -> Self {
        Self {
            time_ns: u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
            id: u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")),
            frame_len: u16::from_le_bytes(bytes[12..14].try_into().expect("two bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips() {
        for counts in [None, Some(TapCounts { seen: 5, stored: 3, lost: 2, other: 7 })] {
            let header = Header { clock: Clock::Monotonic, counts, link: "ingress".into() };
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
    }

    #[test]
    fn header_of_another_version_is_refused() {
        let header = Header { clock: Clock::Monotonic, counts: None, link: "egress".into() };
        let mut bytes = header.encode();
        bytes[8] = 2;
        assert_eq!(Header::decode(&bytes), None);
        assert_eq!(Header::decode(&bytes[..40]), None);
    }

    #[test]
    fn stamp_round_trips() {
        let stamp = Stamp { time_ns: 1 << 40, id: u32::MAX, frame_len: 60 };
        assert_eq!(Stamp::decode(&stamp.encode()), stamp);
    }
}
