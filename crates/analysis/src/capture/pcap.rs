//! Classic pcap, <https://ietf-opsawg-wg.github.io/draft-ietf-opsawg-pcap/>: a 24-byte header,
//! then for each packet a 16-byte record header and the captured bytes.
//!
//! Our own reader and not a library's: the loop below is what bounds the evaluation's speed.

use std::path::Path;

use super::error::HeaderError;
use super::format::{Progress, Reader};
use super::{Content, LINKTYPE_ETHERNET, MAX_FRAME, Notes, Packet, Sink, le_u32};

const HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// So many headers in a row that make sense are no accident.
const CHAIN: usize = 32;
/// Records in a row are not further apart than this.
const LONGEST_PAUSE_S: u64 = 3600;

pub(super) struct Decoder {
    swapped: bool,
    ns_per_fraction: u64,
}

/// Whether the bytes start with one of the four magics, as (swapped, nanoseconds).
fn magic(head: &[u8]) -> Option<(bool, bool)> {
    let magic = le_u32(head.get(..4)?);
    match (magic, magic.swap_bytes()) {
        (MICROSECONDS, _) => Some((false, false)),
        (NANOSECONDS, _) => Some((false, true)),
        (_, MICROSECONDS) => Some((true, false)),
        (_, NANOSECONDS) => Some((true, true)),
        _ => None,
    }
}

impl Reader for Decoder {
    fn recognises(head: &[u8], _: &Path) -> bool {
        magic(head).is_some()
    }

    fn open(head: &[u8], _: &mut Notes) -> Result<(Self, usize), HeaderError> {
        let (swapped, nanoseconds) = magic(head).ok_or(HeaderError::Unknown)?;
        if head.len() < HEADER_LEN {
            return Err(HeaderError::Cut);
        }
        let word = |at: usize| order(le_u32(&head[at..]), swapped);
        // The upper bits of the link type word tell the length of an FCS, which does no harm.
        let linktype = word(20) & 0x0fff_ffff;
        if linktype != LINKTYPE_ETHERNET {
            return Err(HeaderError::LinkType(linktype));
        }
        let ns_per_fraction = if nanoseconds { 1 } else { 1_000 };
        Ok((Self { swapped, ns_per_fraction }, HEADER_LEN))
    }

    #[inline]
    fn decode(&mut self, bytes: &[u8], limit: usize, sink: &mut impl Sink) -> Progress {
        // Two copies of the loop, so that the common one has no byte swaps.
        if self.swapped {
            self.decode_as::<true>(bytes, limit, sink)
        } else {
            self.decode_as::<false>(bytes, limit, sink)
        }
    }

    fn first_record(&self) -> Option<u64> {
        Some(HEADER_LEN as u64)
    }

    /// Where a chain of records begins that could follow each other, none of them before `since`.
    /// Without that, zeros and a clock that has not run for long look like a record at the end of
    /// the file.
    fn find(&self, bytes: &[u8], _: u64, since: u64) -> Option<usize> {
        let mut starts = 0..bytes.len().min(RECORD_HEADER_LEN + MAX_FRAME);
        starts.find(|&start| self.is_chain(&bytes[start..], since))
    }
}

impl Decoder {
    #[inline]
    fn decode_as<const SWAPPED: bool>(
        &self,
        bytes: &[u8],
        limit: usize,
        sink: &mut impl Sink,
    ) -> Progress {
        let mut at = 0;
        for _ in 0..limit {
            let Some(header) = bytes.get(at..at + RECORD_HEADER_LEN) else {
                return Progress::More(at);
            };
            let captured = order(le_u32(&header[8..]), SWAPPED) as usize;
            if captured > MAX_FRAME {
                return Progress::Damaged(at, format!("a record of {captured} bytes is absurd"));
            }
            let start = at + RECORD_HEADER_LEN;
            let Some(frame) = bytes.get(start..start + captured) else {
                return Progress::More(at);
            };
            let seconds = u64::from(order(le_u32(header), SWAPPED));
            let fraction = u64::from(order(le_u32(&header[4..]), SWAPPED));
            sink.take(Packet {
                time_ns: seconds * 1_000_000_000 + fraction * self.ns_per_fraction,
                content: Content::Frame {
                    bytes: frame,
                    wire_len: order(le_u32(&header[12..]), SWAPPED),
                },
            });
            at = start + captured;
        }
        Progress::Full(at)
    }

    fn is_chain(&self, mut bytes: &[u8], since: u64) -> bool {
        let fractions = 1_000_000_000 / self.ns_per_fraction;
        let mut before = None;
        for _ in 0..CHAIN {
            let Some(header) = bytes.first_chunk::<RECORD_HEADER_LEN>() else {
                return bytes.is_empty() && before.is_some();
            };
            let word = |at: usize| order(le_u32(&header[at..]), self.swapped);
            let (seconds, fraction, captured, wire) = (word(0), word(4), word(8), word(12));
            let seconds = u64::from(seconds);
            let soon = before.map_or(seconds >= since, |before| {
                (before..=before + LONGEST_PAUSE_S).contains(&seconds)
            });
            let sane = (1..=MAX_FRAME as u32).contains(&captured) && captured <= wire;
            if !soon || !sane || u64::from(fraction) >= fractions {
                return false;
            }
            let Some(rest) = bytes.get(RECORD_HEADER_LEN + captured as usize..) else {
                return false;
            };
            before = Some(seconds);
            bytes = rest;
        }
        true
    }
}

#[inline]
fn order(value: u32, swapped: bool) -> u32 {
    if swapped { value.swap_bytes() } else { value }
}
