//! MoonSniff's mscap: records of 12 bytes, u64 nanoseconds and u32 packet id, little-endian,
//! without a header.
//!
//! MoonSniff computes the seconds' part of a time in 32 bits, so that its times are only right
//! modulo 2^32 ns: about every 4.3 s they jump back by just that much. The jumps are undone here,
//! which is unambiguous as long as packets follow each other within half of that.

use std::path::Path;

use super::error::HeaderError;
use super::format::{Progress, Reader};
use super::{Content, LATEST_NS, Notes, Packet, Sink, TOO_LATE, le_u32};

const RECORD_LEN: usize = 12;
/// The period of MoonSniff's times.
const PERIOD_NS: u64 = 1 << 32;

#[derive(Default)]
pub(super) struct Decoder {
    last: u64,
    offset: u64,
}

impl Reader for Decoder {
    const HOLDS_IDS: bool = true;
    const MAY_BE_EMPTY: bool = true;

    /// Whether the name, less a compression suffix, ends in `.mscap`.
    fn recognises(_: &[u8], path: &Path) -> bool {
        let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        let name = name.strip_suffix(".zst").or(name.strip_suffix(".gz")).unwrap_or(&name);
        name.ends_with(".mscap")
    }

    fn open(_: &[u8], _: &mut Notes) -> Result<(Self, usize), HeaderError> {
        Ok((Self::default(), 0))
    }

    #[inline]
    fn decode(&mut self, bytes: &[u8], limit: usize, sink: &mut impl Sink) -> Progress {
        let mut used = 0;
        for record in bytes.chunks_exact(RECORD_LEN).take(limit) {
            let low = u64::from(le_u32(record));
            let time = u64::from(le_u32(&record[4..])) << 32 | low;
            if self.last.saturating_sub(time) > PERIOD_NS / 2 {
                self.offset += PERIOD_NS;
            }
            let time_ns = time.saturating_add(self.offset);
            if time_ns > LATEST_NS {
                return Progress::Damaged(used, TOO_LATE.into());
            }
            self.last = time;
            sink.take(Packet { time_ns, content: Content::Id(le_u32(&record[8..])) });
            used += RECORD_LEN;
        }
        if used == limit * RECORD_LEN { Progress::Full(used) } else { Progress::More(used) }
    }

    fn note(&self, notes: &mut Notes) {
        notes.unwrapped = self.offset / PERIOD_NS;
    }
}
