//! tailtap's own stamp files; the format is described in [`crate::stamps`].

use std::path::Path;

use super::error::HeaderError;
use super::notes::Reason;
use super::reader::{Progress, Reader};
use super::{Content, LATEST_NS, Notes, Packet, Sink, Unread};
use crate::stamps::{HEADER_LEN, Header, MAGIC, RECORD_LEN, Stamp};

#[derive(Default)]
pub(super) struct Decoder {
    /// Records whose time cannot be true.
    impossible: u64,
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
        notes.tap = header.counts;
        notes.unclosed = header.counts.is_none();
        notes.clock = Some(header.clock);
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
            let stamp = Stamp::decode(record);
            if stamp.time_ns > LATEST_NS {
                self.impossible += 1;
                continue;
            }
            sink.take(Packet {
                time_ns: stamp.time_ns,
                interface: 0,
                outgoing: None,
                content: Content::Id(stamp.id),
            });
            taken += 1;
        }
        if taken == limit { Progress::Full(used) } else { Progress::More(used) }
    }

    fn note(&self, notes: &mut Notes) {
        notes.unread = Unread::default();
        notes.unread.add(Reason::BadTime, self.impossible);
        notes.unit_ns = 1;
    }

    fn first_record(&self) -> Option<u64> {
        Some(HEADER_LEN as u64)
    }

    fn find(&self, _: &[u8], position: u64, _: u64) -> Option<usize> {
        let record = RECORD_LEN as u64;
        Some(((record - (position - HEADER_LEN as u64) % record) % record) as usize)
    }
}
