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
//! |     16 |    8 | more of the kind: a function's address, who slept, how many were lost      |
//! |     24 |    4 | which of the kind: an interrupt's number, a process, a softirq's vector    |
//! |     28 |    4 | steal of the core since its record before this one, in nanoseconds         |

mod error;
mod read;
mod survey;

pub use error::TraceError;
pub use read::{Notes, Trace};
pub use survey::{Ahead, Part};

/// First bytes of every trace file.
pub const MAGIC: [u8; 8] = *b"TTTRACE1";
/// Size of a record in bytes.
pub const RECORD_LEN: usize = 32;
/// The flag of a record that stands for several short intervals.
pub const ACCUMULATED: u8 = 1;
/// What a record of [`kind::RUNNABLE`] has in `aux` when the task waited for its group's quota.
pub const THROTTLED: u64 = 1;

/// What a record is about.
pub mod kind {
    /// A device's interrupt; the id is its number.
    pub const IRQ: u8 = 1;
    /// A vector of the processor: timer, reschedule, function call and others.
    pub const VECTOR: u8 = 2;
    /// The function that an interrupt between processors called.
    pub const IPI_FUNCTION: u8 = 3;
    /// From sending an interrupt between processors to entering it.
    pub const IPI_DELAY: u8 = 4;
    /// A softirq; the id is its vector.
    pub const SOFTIRQ: u8 = 5;
    /// A stretch of a task on the core; the id is its pid.
    pub const TASK: u8 = 6;
    /// From waking a served task to running it.
    pub const WAKEUP: u8 = 7;
    /// The function of a kworker.
    pub const WORK: u8 = 8;
    /// The core idles; the id is the state.
    pub const IDLE: u8 = 9;
    /// A non-maskable interrupt.
    pub const NMI: u8 = 10;
    /// The function of a timer.
    pub const HRTIMER: u8 = 11;
    /// A flush of the TLB; the id is the reason.
    pub const TLB_FLUSH: u8 = 12;
    /// A page fault.
    pub const PAGE_FAULT: u8 = 13;
    /// Direct reclaim of memory.
    pub const RECLAIM: u8 = 14;
    /// Compaction of memory.
    pub const COMPACTION: u8 = 15;
    /// From one exit of a guest to its next entry.
    pub const KVM_EXIT: u8 = 17;
    /// A served task that could run and did not; [`THROTTLED`](super::THROTTLED) says whether it was
    /// allowed to.
    pub const RUNNABLE: u8 = 19;
    /// A softirq received packets of other networks than those that are served.
    pub const FOREIGN_RX: u8 = 20;
    /// The tracer had no room for records.
    pub const LOST: u8 = 254;
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
        let waited = self.kind == kind::SOFTIRQ && self.flags & ACCUMULATED == 0;
        self.start_ns.saturating_sub(if waited { self.aux } else { 0 })
    }

    /// The end in nanoseconds, of several short intervals that of the last.
    pub fn end_ns(&self) -> u64 {
        let length = self.accumulated().map_or(u64::from(self.dur_ns), |(window, _)| window);
        self.start_ns.saturating_add(length)
    }
}
