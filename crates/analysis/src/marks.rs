//! The file of marks: what a tap writes of traffic whose bytes nobody may keep. Of each packet its
//! time, a hash of its key, and its length.
//!
//! Everything is little-endian. A header of [`HEADER_LEN`] bytes:
//!
//! | offset | size | content                                                              |
//! |-------:|-----:|----------------------------------------------------------------------|
//! |      0 |    8 | [`MAGIC`]                                                            |
//! |      8 |    2 | version, 1                                                           |
//! |     10 |    2 | record size in bytes, 24                                             |
//! |     12 |    4 | clock ([`Clock`])                                                    |
//! |     16 |    8 | packets with a key that the tap saw                                  |
//! |     24 |    8 | of these, stored in this file                                        |
//! |     32 |    8 | of these, lost for lack of room                                      |
//! |     40 |    8 | packets without a key, never stored                                  |
//! |     48 |    8 | packets that the filter left out                                     |
//! |     56 |    8 | packets that were not in the sample                                  |
//! |     64 |    4 | bytes of the payload that are in a key, at most                      |
//! |     68 |    4 | how many samples follow, from 1 to [`MOST_SAMPLES`]                  |
//! |     72 |   24 | name of the link, UTF-8, padded with NUL                             |
//! |     96 |   32 | name of the key, as `evaluate --key` has it, padded with NUL         |
//! |    128 |   16 | for each sample the time from which on it was taken (u64), the binary |
//! |        |      | logarithm of how many packets it has one of (u8), and 7 B of 0       |
//!
//! The six counts are `u64::MAX` until the tap has closed the file. Records of [`RECORD_LEN`] bytes
//! follow: time in nanoseconds (u64), hash (u64), frame length without FCS (u32), flags (u8, bit 0:
//! the packet left through the interface), level (u8: the packet is in every sample of one in `2^n`
//! with `n` up to this), and the CPU that stamped it, plus 1 (u16; 0: not known).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::stamps::{Clock, TapCounts};

/// First bytes of every file of marks.
pub const MAGIC: [u8; 8] = *b"\x89TTMARK\n";
/// Size of the header in bytes.
pub const HEADER_LEN: usize = 4096;
/// Size of a record in bytes.
pub const RECORD_LEN: usize = 24;
/// The format version that this code reads and writes.
pub const VERSION: u16 = 1;
/// So many samples a header has room for.
pub const MOST_SAMPLES: usize = (HEADER_LEN - FIXED_LEN) / SAMPLE_LEN;
/// The thinnest sample: one packet of 65,536.
pub const MOST_LEVEL: u8 = 16;
/// A packet is under way for no longer than this while the sample changes: the side behind the device
/// takes a thinner one so much later than the side before it.
pub const IN_FLIGHT_NS: u64 = 5_000_000_000;

const FIXED_LEN: usize = 128;
const SAMPLE_LEN: usize = 16;
const LINK: Range<usize> = 72..96;
const KEY: Range<usize> = 96..FIXED_LEN;
const CPU: Range<usize> = 22..RECORD_LEN;
const LEFT: u8 = 1;

/// One packet of `2^level` is stamped from a time on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The time in nanoseconds.
    pub since_ns: u64,
    /// The binary logarithm of how many packets there are for each that is stamped.
    pub level: u8,
}

/// What a tap counted on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkCounts {
    /// Packets of the sample.
    pub tap: TapCounts,
    /// Packets that the filter left out.
    pub filtered: u64,
    /// Packets that were not in the sample.
    pub unsampled: u64,
}

/// The header of a file of marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Clock of the times.
    pub clock: Clock,
    /// The tap's counts; `None` until the file was closed.
    pub counts: Option<MarkCounts>,
    /// Bytes of the payload that are in a key, at most.
    pub most: u32,
    /// The samples, at least one and at most [`MOST_SAMPLES`], in the order of time.
    pub samples: Vec<Sample>,
    /// Name of the link, at most 24 bytes of UTF-8.
    pub link: String,
    /// Name of the key, at most 32 bytes.
    pub key: String,
}

impl Header {
    /// The header as it stands in the file. Longer names are cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(RECORD_LEN as u16).to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.clock as u32).to_le_bytes());
        let counts = self.counts.map_or([u64::MAX; 6], |counts| {
            let TapCounts { seen, stored, lost, other } = counts.tap;
            [seen, stored, lost, other, counts.filtered, counts.unsampled]
        });
        for (slot, count) in bytes[16..64].chunks_exact_mut(8).zip(counts) {
            slot.copy_from_slice(&count.to_le_bytes());
        }
        bytes[64..68].copy_from_slice(&self.most.to_le_bytes());
        let samples = &self.samples[..self.samples.len().min(MOST_SAMPLES)];
        bytes[68..72].copy_from_slice(&(samples.len() as u32).to_le_bytes());
        for (slot, text) in [(LINK, &self.link), (KEY, &self.key)] {
            let len = text.len().min(slot.len());
            bytes[slot][..len].copy_from_slice(&text.as_bytes()[..len]);
        }
        for (slot, sample) in bytes[FIXED_LEN..].chunks_exact_mut(SAMPLE_LEN).zip(samples) {
            slot[..8].copy_from_slice(&sample.since_ns.to_le_bytes());
            slot[8] = sample.level;
        }
        bytes
    }

    /// Reads a header. `None` when the magic, version or record size are not this format's, or it
    /// says what no tap writes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_LEN)?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes[..8] != MAGIC || u16_at(8) != VERSION || u16_at(10) != RECORD_LEN as u16 {
            return None;
        }
        let text = |slot: Range<usize>| {
            let text = &bytes[slot];
            let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
            String::from_utf8_lossy(&text[..end]).into_owned()
        };
        let count = u32_at(68) as usize;
        let places = (0..count.min(MOST_SAMPLES)).map(|place| FIXED_LEN + place * SAMPLE_LEN);
        let samples: Vec<Sample> =
            places.map(|at| Sample { since_ns: u64_at(at), level: bytes[at + 8] }).collect();
        let sound = (1..=MOST_SAMPLES).contains(&count)
            && samples.is_sorted_by_key(|sample| sample.since_ns)
            && samples.iter().all(|sample| sample.level <= MOST_LEVEL);
        sound.then(|| Self {
            clock: Clock::from_code(u32_at(12)),
            counts: (u64_at(16) != u64::MAX).then(|| MarkCounts {
                tap: TapCounts {
                    seen: u64_at(16),
                    stored: u64_at(24),
                    lost: u64_at(32),
                    other: u64_at(40),
                },
                filtered: u64_at(48),
                unsampled: u64_at(56),
            }),
            most: u32_at(64),
            samples,
            link: text(LINK),
            key: text(KEY),
        })
    }
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Time in nanoseconds.
    pub time_ns: u64,
    /// Hash of its key, or an id itself.
    pub key: u64,
    /// Frame length in bytes, without FCS.
    pub frame_len: u32,
    /// Whether it left through the interface.
    pub left: bool,
    /// It is in every sample of one in `2^n` packets with `n` up to this.
    pub level: u8,
    /// The CPU on which the tap's program saw it, if that is known.
    pub cpu: Option<u16>,
}

impl Mark {
    /// The record as it stands in the file.
    pub fn encode(self) -> [u8; RECORD_LEN] {
        let mut bytes = [0u8; RECORD_LEN];
        bytes[..8].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.frame_len.to_le_bytes());
        bytes[20] = if self.left { LEFT } else { 0 };
        bytes[21] = self.level;
        bytes[CPU].copy_from_slice(&self.cpu.map_or(0, |cpu| cpu.saturating_add(1)).to_le_bytes());
        bytes
    }

    /// Reads a record.
    #[inline]
    pub fn decode(bytes: &[u8; RECORD_LEN]) -> Self {
        let u64_at =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Self {
            time_ns: u64_at(0),
            key: u64_at(8),
            frame_len: u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes")),
            left: bytes[20] & LEFT != 0,
            level: bytes[21],
            cpu: u16::from_le_bytes([bytes[22], bytes[23]]).checked_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_record_come_back_as_they_were() {
        let tap = TapCounts { seen: 9, stored: 7, lost: 2, other: 3 };
        let counts = MarkCounts { tap, filtered: 5, unsampled: 1 << 40 };
        let samples =
            vec![Sample { since_ns: 0, level: 0 }, Sample { since_ns: 1 << 50, level: 16 }];
        for counts in [None, Some(counts)] {
            let header = Header {
                clock: Clock::Realtime,
                counts,
                most: 160,
                samples: samples.clone(),
                link: "before".into(),
                key: "udp.payload+0:4:le".into(),
            };
            let bytes = header.encode();
            assert_eq!(bytes.len(), HEADER_LEN);
            assert_eq!(Header::decode(&bytes), Some(header));
        }
        for cpu in [None, Some(0), Some(500)] {
            let mark =
                Mark { time_ns: 1, key: u64::MAX, frame_len: 70_000, left: true, level: 9, cpu };
            assert_eq!(Mark::decode(&mark.encode()), mark);
        }
    }

    #[test]
    fn what_no_tap_writes_is_refused() {
        let header = Header {
            clock: Clock::Monotonic,
            counts: None,
            most: 1,
            samples: vec![Sample { since_ns: 5, level: 1 }, Sample { since_ns: 6, level: 0 }],
            link: "x".into(),
            key: "packet".into(),
        };
        let good = header.encode();
        assert!(Header::decode(&good[..HEADER_LEN - 1]).is_none());
        // Magic, version, record size, no samples, too many, a level, and samples out of order.
        for (at, value) in [(0, 0), (8, 2), (10, 16), (68, 0), (69, 1), (136, 17), (128, 7)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(Header::decode(&bytes).is_none(), "byte {at}");
        }
    }
}
