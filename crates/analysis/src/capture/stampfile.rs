//! tailtap's own stamp files; the format is described in [`crate::stamps`].

use super::{Content, HeaderError, LATEST_NS, Packet, Progress, TOO_LATE};
use crate::stamps::{HEADER_LEN, Header, RECORD_LEN, Stamp};

pub(super) fn header(head: &[u8]) -> Result<Header, HeaderError> {
    if head.len() < HEADER_LEN {
        return Err(HeaderError::Cut);
    }
    Header::decode(head).ok_or(HeaderError::Unknown)
}

pub(super) fn decode(bytes: &[u8], limit: usize, sink: &mut impl FnMut(Packet<'_>)) -> Progress {
    let (records, _) = bytes.as_chunks::<RECORD_LEN>();
    let records = &records[..records.len().min(limit)];
    for (place, record) in records.iter().enumerate() {
        let stamp = Stamp::decode(record);
        if stamp.time_ns > LATEST_NS {
            return Progress::Damaged(place * RECORD_LEN, TOO_LATE.into());
        }
        sink(Packet { time_ns: stamp.time_ns, content: Content::Id(stamp.id) });
    }
    let used = records.len() * RECORD_LEN;
    if records.len() == limit { Progress::Full(used) } else { Progress::More(used) }
}

/// How many bytes behind a position in the file the next record begins.
pub(super) fn find(position: u64) -> usize {
    let record = RECORD_LEN as u64;
    ((record - (position - HEADER_LEN as u64) % record) % record) as usize
}
