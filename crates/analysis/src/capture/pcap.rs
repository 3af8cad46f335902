//! Classic pcap, <https://ietf-opsawg-wg.github.io/draft-ietf-opsawg-pcap/>: a 24-byte header,
//! then for each packet a 16-byte record header and the captured bytes.
//!
//! Our own reader and not a library's: the loop below is what bounds the evaluation's speed.

use std::path::Path;

use tailtap_wire::link::Link;

use super::error::{HeaderError, Unreadable};
use super::link::LinkType;
use super::mistaken::Mistaken;
use super::notes::Reason;
use super::opened::Opened;
use super::reader::{Progress, Reader, Recovery};
use super::{Content, LOOK_AHEAD, MAX_FRAME, Notes, Packet, Sink, Unread, le_u32, without_fcs};

const HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// The link type word holds the link type in its lower half. Above are the length of the frame check
/// sequence, in words of two bytes, and a bit that says that this length is given.
const LINKTYPE: u32 = 0xffff;
const FCS_GIVEN: u32 = 1 << 26;
const FCS_WORDS_SHIFT: u32 = 28;

/// So many headers in a row that make sense are no accident.
const CHAIN: usize = 32;
/// So many are enough behind damage, as their times are near that of the record before it.
const CHAIN_BEHIND_DAMAGE: usize = 8;
/// Records in a row are not further apart than this.
const LONGEST_PAUSE_S: u64 = 3600;

pub(super) struct Decoder {
    swapped: bool,
    ns_per_fraction: u64,
    link: LinkType,
    fcs_len: usize,
    /// Records so far, and the time of the last one in seconds.
    records: u64,
    last_s: Option<u64>,
    mistaken: Mistaken,
    unread: Unread,
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
        let linktype = word(20) & LINKTYPE;
        let link = LinkType::of(linktype).ok_or(HeaderError::LinkType(linktype))?;
        let fcs_words = if word(20) & FCS_GIVEN == 0 { 0 } else { word(20) >> FCS_WORDS_SHIFT };
        let decoder = Self {
            swapped,
            ns_per_fraction: if nanoseconds { 1 } else { 1_000 },
            link,
            fcs_len: 2 * fcs_words as usize,
            records: 0,
            last_s: None,
            mistaken: Mistaken::default(),
            unread: Unread::default(),
        };
        Ok((decoder, HEADER_LEN))
    }

    #[inline]
    fn decode(&mut self, bytes: &[u8], limit: usize, sink: &mut impl Sink) -> Progress {
        // Copies of the loop, so that the common one has no byte swaps and takes nothing off.
        let whole = self.link == LinkType::Ethernet && self.fcs_len == 0;
        match (self.swapped, whole) {
            (false, true) => self.decode_as::<false, true>(bytes, limit, sink),
            (false, false) => self.decode_as::<false, false>(bytes, limit, sink),
            (true, true) => self.decode_as::<true, true>(bytes, limit, sink),
            (true, false) => self.decode_as::<true, false>(bytes, limit, sink),
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
        let times = (since, u64::MAX);
        starts.find(|&start| self.is_chain(&bytes[start..], times, CHAIN, false))
    }

    fn recover(&mut self, bytes: &[u8], ended: bool) -> Recovery {
        let times = match self.last_s {
            // Stamps need not be quite in order.
            Some(last) => (last.saturating_sub(1), last + LONGEST_PAUSE_S),
            None => (0, u64::MAX),
        };
        // The longest chain fits behind every place that is tried.
        let end = if ended { bytes.len() } else { bytes.len() - LOOK_AHEAD / 2 };
        let is_record =
            |start: &usize| self.is_chain(&bytes[*start..], times, CHAIN_BEHIND_DAMAGE, ended);
        match (1..end).find(is_record) {
            Some(start) => Recovery::Record(start),
            None => Recovery::Nothing(end),
        }
    }

    fn refusal(&self, ended: bool) -> Option<Unreadable> {
        self.mistaken.is_sure(self.records, ended).then_some(Unreadable::Nanoseconds {
            says: "its magic number says microseconds",
            mend: "or mend a copy: printf '\\x4d\\x3c' | dd of=COPY bs=1 conv=notrunc (for a \
                   little-endian file)",
        })
    }

    fn take_for_nanoseconds(&mut self) {
        self.ns_per_fraction = 1;
    }

    fn take_off(&mut self, fcs_len: usize) {
        if self.fcs_len == 0 {
            self.fcs_len = fcs_len;
        }
    }

    fn note(&self, notes: &mut Notes) {
        notes.unread = self.unread;
        notes.unit_ns = self.ns_per_fraction;
        notes.fcs_len = self.fcs_len as u64;
    }
}

impl Decoder {
    #[inline]
    fn decode_as<const SWAPPED: bool, const WHOLE: bool>(
        &mut self,
        bytes: &[u8],
        limit: usize,
        sink: &mut impl Sink,
    ) -> Progress {
        let fractions = self.fractions();
        let mut at = 0;
        let mut taken = 0;
        let mut last_s = self.last_s;
        let progress = loop {
            if taken == limit {
                break Progress::Full(at);
            }
            let Some(header) = bytes.get(at..at + RECORD_HEADER_LEN) else {
                break Progress::More(at);
            };
            let captured = order(le_u32(&header[8..]), SWAPPED) as usize;
            if captured > MAX_FRAME {
                let why = format!("a record of {captured} bytes is absurd");
                break Progress::Damaged(at, why);
            }
            let start = at + RECORD_HEADER_LEN;
            let Some(frame) = bytes.get(start..start + captured) else {
                break Progress::More(at);
            };
            let seconds = u64::from(order(le_u32(header), SWAPPED));
            let fraction = u64::from(order(le_u32(&header[4..]), SWAPPED));
            at = start + captured;
            if fraction >= fractions {
                self.note_fraction(fraction, taken as u64);
                continue;
            }
            last_s = Some(seconds);
            let wire_len = order(le_u32(&header[12..]), SWAPPED);
            let opened = match WHOLE {
                true => Some(Opened::plain(frame, wire_len, Link::Ethernet)),
                false => {
                    let (bytes, wire_len) = without_fcs(frame, wire_len, self.fcs_len);
                    self.link.open(bytes, wire_len)
                }
            };
            let Some(Opened { bytes, wire_len, link, interface, outgoing }) = opened else {
                self.records += 1;
                self.unread.add(Reason::LinkHeader, 1);
                continue;
            };
            sink.take(Packet {
                time_ns: seconds * 1_000_000_000 + fraction * self.ns_per_fraction,
                interface: interface.unwrap_or_default(),
                outgoing,
                content: Content::Frame { bytes, wire_len, link },
            });
            taken += 1;
        };
        self.records += taken as u64;
        self.last_s = last_s;
        progress
    }

    /// Into how many fractions a second is divided.
    fn fractions(&self) -> u64 {
        1_000_000_000 / self.ns_per_fraction
    }

    /// Counts a record whose fraction of a second is more than one. So many were `taken` since the
    /// records were counted.
    #[cold]
    fn note_fraction(&mut self, fraction: u64, taken: u64) {
        if fraction < 1_000_000_000 {
            self.mistaken.add(self.records + taken);
        }
        self.records += 1;
        self.unread.add(Reason::BadTime, 1);
    }

    /// Whether so many records that could follow each other, none outside of `times` in seconds, stand
    /// at the start of the bytes. Where the bytes are the end of the file, fewer will do: one up to the
    /// very end, or two and a part of a third.
    fn is_chain(&self, mut bytes: &[u8], times: (u64, u64), length: usize, ended: bool) -> bool {
        let fractions = self.fractions();
        let mut before = None;
        for place in 0..length {
            let Some(header) = bytes.first_chunk::<RECORD_HEADER_LEN>() else {
                return match bytes.is_empty() {
                    true => before.is_some(),
                    false => ended && place > 1,
                };
            };
            let word = |at: usize| order(le_u32(&header[at..]), self.swapped);
            let (captured, wire) = (word(8), word(12));
            let sane = (1..=MAX_FRAME as u32).contains(&captured) && captured <= wire;
            if !sane || u64::from(word(4)) >= fractions {
                return false;
            }
            let seconds = u64::from(word(0));
            let soon = match before {
                None => (times.0..=times.1).contains(&seconds),
                // Behind damage stamps need not be quite in order; marks are for files that are.
                Some(before) => {
                    let slack = u64::from(length == CHAIN_BEHIND_DAMAGE);
                    (before - slack.min(before)..=before + LONGEST_PAUSE_S).contains(&seconds)
                }
            };
            if !soon {
                return false;
            }
            let Some(rest) = bytes.get(RECORD_HEADER_LEN + captured as usize..) else {
                return ended && place > 1;
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
