//! MoonSniff's mscap: records of 12 bytes, u64 nanoseconds and u32 packet id, little-endian,
//! without a header.
//!
//! MoonSniff computes the seconds' part of a time in 32 bits, so that its times are only right
//! modulo 2^32 ns: about every 4.3 s they jump back by just that much. The jumps are undone here,
//! which is unambiguous as long as packets follow each other within half of that.

use std::path::Path;

use super::error::HeaderError;
use super::notes::Reason;
use super::reader::{Progress, Reader, has_suffix};
use super::{Content, LATEST_NS, Notes, Packet, Sink, Unread, le_u32};

const RECORD_LEN: usize = 12;
/// The period of MoonSniff's times.
const PERIOD_NS: u64 = 1 << 32;

#[derive(Default)]
pub(super) struct Decoder {
    last: u64,
    offset: u64,
    /// Records whose time cannot be true.
    impossible: u64,
}

impl Reader for Decoder {
    const HOLDS_IDS: bool = true;
    const MAY_BE_EMPTY: bool = true;

    /// Whether the name, less a compression suffix, ends in `.mscap`.
    fn recognises(_: &[u8], path: &Path) -> bool {
        has_suffix(path, ".mscap")
    }

    fn open(_: &[u8], _: &mut Notes) -> Result<(Self, usize), HeaderError> {
        Ok((Self::default(), 0))
    }

    #[inline]
    fn decode(&mut self, bytes: &[u8], limit: usize, sink: &mut impl Sink) -> Progress {
        let (mut used, mut taken) = (0, 0);
        for record in bytes.chunks_exact(RECORD_LEN) {
            if taken == limit {
                break;
            }
            used += RECORD_LEN;
            let low = u64::from(le_u32(record));
            let time = u64::from(le_u32(&record[4..])) << 32 | low;
            let back = self.last.saturating_sub(time) > PERIOD_NS / 2;
            let offset = self.offset + if back { PERIOD_NS } else { 0 };
            let time_ns = time.saturating_add(offset);
            if time_ns > LATEST_NS {
                // The next one is held against the last that makes sense.
                self.impossible += 1;
                continue;
            }
            (self.last, self.offset) = (time, offset);
            let content = Content::Id(le_u32(&record[8..]));
            sink.take(Packet { time_ns, interface: 0, outgoing: None, content });
            taken += 1;
        }
        if taken == limit { Progress::Full(used) } else { Progress::More(used) }
    }

    fn note(&self, notes: &mut Notes) {
        notes.unwrapped = self.offset / PERIOD_NS;
        notes.unread = Unread::default();
        notes.unread.add(Reason::BadTime, self.impossible);
        notes.unit_ns = 1;
    }
}
