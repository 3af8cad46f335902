//! The trace file: what the kernel did on each core, one fixed-size record for each interval.
//!
//! Everything is little-endian. [`MAGIC`], then records of [`RECORD_LEN`] bytes, of each core in the
//! order in which they ended; cores are interleaved:
//!
//! | offset | size | content                                                                    |
//! |-------:|-----:|----------------------------------------------------------------------------|
//! |      0 |    8 | start in nanoseconds of CLOCK_MONOTONIC                                    |
//! |      8 |    4 | duration in nanoseconds, [`u32::MAX`] for any longer one                   |
//! |     12 |    1 | [`kind`]                                                                   |
//! |     13 |    1 | flags: [`ACCUMULATED`]                                                     |
//! |     14 |    2 | core                                                                       |
//! |     16 |    8 | more of the kind: a function's address, who slept, how many were lost;     |
//! |        |      | of a softirq since when it was raised, and by whom ([`Record::raiser`])     |
//! |     24 |    4 | which of the kind: an interrupt's number, a process, a softirq's vector    |
//! |     28 |    4 | steal of the core since its record before this one, in nanoseconds         |

mod error;
mod read;
mod survey;

pub use error::{TraceError, Unreadable};
pub use read::{Ahead, Notes, Part, Trace};

/// First bytes of every trace file.
pub const MAGIC: [u8; 8] = *b"TTTRACE1";
/// Size of a record in bytes.
pub const RECORD_LEN: usize = 32;
/// The flag of a record that stands for several short intervals.
pub const ACCUMULATED: u8 = 1;
/// What a record of [`kind::RUNNABLE`] has in `aux` when the task waited for its group's quota: it
/// was not allowed to run.
pub const THROTTLED: u64 = 1;

/// What a record is about: the list of bpf/trace_kinds.h.
pub mod kind {
    include!(concat!(env!("OUT_DIR"), "/kinds.rs"));

    /// The name of a kind for people.
    pub fn name(kind: u8) -> &'static str {
        ALL.iter().find(|(number, _)| *number == kind).map_or("unknown", |(_, name)| name)
    }
}

/// One record; see the module for its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Start in nanoseconds.
    pub start_ns: u64,
    /// Duration in nanoseconds.
    pub dur_ns: u32,
    /// One of [`kind`].
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// The core.
    pub cpu: u16,
    /// More of the kind.
    pub aux: u64,
    /// Which of the kind.
    pub id: u32,
    /// Steal since the core's record before this one.
    pub steal_ns: u32,
}

impl Record {
    /// The record as it stands in the file.
    pub fn encode(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..8].copy_from_slice(&self.start_ns.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.dur_ns.to_le_bytes());
        bytes[12] = self.kind;
        bytes[13] = self.flags;
        bytes[14..16].copy_from_slice(&self.cpu.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.aux.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.id.to_le_bytes());
        bytes[28..].copy_from_slice(&self.steal_ns.to_le_bytes());
        bytes
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8; RECORD_LEN]) -> Self {
        let four = |at: usize| bytes[at..at + 4].try_into().expect("four bytes");
        let eight = |at: usize| bytes[at..at + 8].try_into().expect("eight bytes");
        Self {
            start_ns: u64::from_le_bytes(eight(0)),
            dur_ns: u32::from_le_bytes(four(8)),
            kind: bytes[12],
            flags: bytes[13],
            cpu: u16::from_le_bytes([bytes[14], bytes[15]]),
            aux: u64::from_le_bytes(eight(16)),
            id: u32::from_le_bytes(four(24)),
            steal_ns: u32::from_le_bytes(four(28)),
        }
    }

    /// Whether it is one stretch of a task or of idle.
    pub fn is_base(&self) -> bool {
        matches!(self.kind, kind::TASK | kind::IDLE) && self.flags & ACCUMULATED == 0
    }

    /// The time from the start of several short intervals to the end of the last, and how many they
    /// are; none for a record of one interval.
    pub fn accumulated(&self) -> Option<(u64, u64)> {
        let window = (self.aux >> 32).max(u64::from(self.dur_ns));
        let number = (self.aux & u64::from(u32::MAX)).max(1);
        (self.flags & ACCUMULATED != 0).then_some((window, number))
    }

    /// The earliest time that it tells of: of a softirq, when it was raised.
    pub(crate) fn since_ns(&self) -> u64 {
        self.start_ns.saturating_sub(self.waited_ns())
    }

    /// How long before its start a softirq was raised.
    pub(crate) fn waited_ns(&self) -> u64 {
        let single = self.kind == kind::SOFTIRQ && self.flags & ACCUMULATED == 0;
        match (single, self.raiser()) {
            (false, _) => 0,
            (true, 0) => self.aux,
            (true, _) => self.aux & u64::from(u32::MAX),
        }
    }

    /// What raised a softirq: an id in bits 0 to 27, its kind in bits 28 to 30; 0 where none is
    /// recorded, as in several short ones and in traces of earlier versions.
    pub fn raiser(&self) -> u64 {
        let known = self.kind == kind::SOFTIRQ && self.flags & ACCUMULATED == 0;
        if known && self.aux >> 60 != 0 { self.aux >> 32 } else { 0 }
    }

    /// The end in nanoseconds, of several short intervals that of the last.
    pub fn end_ns(&self) -> u64 {
        let length = self.accumulated().map_or(u64::from(self.dur_ns), |(window, _)| window);
        self.start_ns.saturating_add(length)
    }
}
