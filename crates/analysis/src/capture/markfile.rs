//! Files of marks; the format is described in [`crate::marks`].

use std::path::Path;

use super::error::HeaderError;
use super::notes::{Marked, Reason};
use super::reader::{Progress, Reader};
use super::{Content, LATEST_NS, Notes, Packet, Sink, Unread};
use crate::marks::{HEADER_LEN, Header, MAGIC, Mark, RECORD_LEN};

#[derive(Default)]
pub(super) struct Decoder {
    /// Records whose time cannot be true.
    impossible: u64,
    /// Packets below this level are not taken.
    least_level: u8,
    /// How many these were.
    thinned: u64,
}

impl Reader for Decoder {
    const HOLDS_IDS: bool = true;
    const SEARCHES: bool = false;

    fn recognises(head: &[u8], _: &Path) -> bool {
        head.starts_with(&MAGIC)
    }

    fn open(head: &[u8], notes: &mut Notes) -> Result<(Self, usize), HeaderError> {
        if head.len() < HEADER_LEN {
            return Err(HeaderError::Cut);
        }
        let header = Header::decode(head).ok_or(HeaderError::Unknown)?;
        let key = header.key.parse().map_err(|_| HeaderError::Unknown)?;
        notes.tap = header.counts.map(|counts| counts.tap);
        notes.unclosed = header.counts.is_none();
        notes.clock = Some(header.clock);
        notes.marked = Some(Marked {
            key,
            most: header.most,
            samples: header.samples,
            unsampled: header.counts.map_or(0, |counts| counts.unsampled),
            filtered: header.counts.map_or(0, |counts| counts.filtered),
            thinned: 0,
        });
        Ok((Self::default(), HEADER_LEN))
    }

    #[inline]
    fn decode(&mut self, bytes: &[u8], limit: usize, sink: &mut impl Sink) -> Progress {
        let (records, _) = bytes.as_chunks::<RECORD_LEN>();
        let (mut used, mut taken) = (0, 0);
        for record in records {
            if taken == limit {
                break;
            }
            used += RECORD_LEN;
            let mark = Mark::decode(record);
            if mark.time_ns > LATEST_NS {
                self.impossible += 1;
                continue;
            }
            if mark.level < self.least_level {
                self.thinned += 1;
                continue;
            }
            sink.take(Packet {
                time_ns: mark.time_ns,
                interface: 0,
                outgoing: Some(mark.left),
                content: Content::Mark { key: mark.key, wire_len: mark.frame_len },
            });
            taken += 1;
        }
        if taken == limit { Progress::Full(used) } else { Progress::More(used) }
    }

    fn take_level(&mut self, least: u8) {
        self.least_level = least;
    }

    fn note(&self, notes: &mut Notes) {
        notes.unread = Unread::default();
        notes.unread.add(Reason::BadTime, self.impossible);
        notes.unit_ns = 1;
        if let Some(marked) = &mut notes.marked {
            marked.thinned = self.thinned;
        }
    }

    fn first_record(&self) -> Option<u64> {
        Some(HEADER_LEN as u64)
    }

    fn find(&self, _: &[u8], position: u64, _: u64) -> Option<usize> {
        let record = RECORD_LEN as u64;
        Some(((record - (position - HEADER_LEN as u64) % record) % record) as usize)
    }
}
