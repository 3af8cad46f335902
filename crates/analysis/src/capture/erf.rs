//! Endace's extensible record format (ERF), as its cards write it: for each packet a header of 16 bytes,
//! further headers of 8 bytes, and what was captured, filled up to a multiple of 8 bytes.
//!
//! The stamp is little-endian, in units of 2^-32 s; all else is big-endian. Without a magic number, a
//! file is known by its suffix, and refused where its first records make no sense.

use std::path::Path;

use tailtap_wire::link::Link;
use tailtap_wire::{ipv4, ipv6};

use super::error::HeaderError;
use super::notes::Reason;
use super::opened::{Opened, hdlc};
use super::reader::{Progress, Reader, Recovery, has_suffix};
use super::{Content, LATEST_NS, LOOK_AHEAD, Notes, Packet, Sink, Unread, without_fcs};

const HEADER_LEN: usize = 16;
const EXTENSION_LEN: usize = 8;
/// The highest bit of a type, and of the first byte of a further header: another one follows.
const MORE: u8 = 0x80;
/// Which of the card's ports received the packet.
const PORT: u8 = 0x03;
/// The header of Ethernet is aligned by two bytes in front of it.
const ETHERNET_PAD: usize = 2;

/// Types of records.
const ETHERNET: u8 = 2;
const ETHERNET_ALIKE: [u8; 3] = [11, 16, 20];
const HDLC: u8 = 1;
const HDLC_ALIKE: [u8; 3] = [10, 15, 19];
const IPV4: u8 = 22;
const IPV6: u8 = 23;
/// Records without a packet: of what the card is, and to fill up.
const WITHOUT_PACKET: [u8; 2] = [27, 48];
/// No type has a higher number.
const HIGHEST: u8 = 48;

/// So many records in a row that make sense are no accident.
const CHAIN: usize = 4;
/// Records in a row are not farther apart than this.
const LONGEST_PAUSE_S: u64 = 3600;

/// The header of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Seconds since 1970, and units of 2^-32 s.
    stamp: u64,
    kind: u8,
    port: u8,
    /// Bytes of the record, all headers included.
    length: usize,
    /// Packets that the card dropped since the record before, of kinds that count it.
    dropped: u16,
    wire_len: u16,
}

impl Record {
    /// The header that bytes begin with, unless it is cut off or makes no sense.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let [_, _, _, _, _, _, _, _, kind, flags, l0, l1, d0, d1, w0, w1] = *header;
        let stamp = u64::from_le_bytes(*header.first_chunk()?);
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let counts = matches!(kind & !MORE, ETHERNET | HDLC);
        let record = Self {
            stamp,
            kind,
            port: flags & PORT,
            length,
            dropped: if counts { u16::from_be_bytes([d0, d1]) } else { 0 },
            wire_len: u16::from_be_bytes([w0, w1]),
        };
        let kind = kind & !MORE;
        ((1..=HIGHEST).contains(&kind) && length >= HEADER_LEN).then_some(record)
    }

    /// The packet in a record that begins with this header, as far as it is there; `None` where it has
    /// none, or is of a kind that is not read.
    pub fn open<'a>(&self, record: &'a [u8]) -> Option<Opened<'a>> {
        let mut at = HEADER_LEN;
        let mut more = self.kind & MORE != 0;
        while more {
            more = record.get(at)? & MORE != 0;
            at += EXTENSION_LEN;
        }
        let ethernet = self.is_ethernet();
        at += if ethernet { ETHERNET_PAD } else { 0 };
        let bytes = record.get(at..record.len().min(self.length))?;
        let wire_len = u32::from(self.wire_len);
        // What fills the record up is no part of the packet.
        let bytes = &bytes[..bytes.len().min(usize::from(self.wire_len))];
        let opened = match self.kind & !MORE {
            _ if ethernet => Opened::plain(bytes, wire_len, Link::Ethernet),
            IPV4 => Opened::plain(bytes, wire_len, Link::Network(ipv4::ETHERTYPE)),
            IPV6 => Opened::plain(bytes, wire_len, Link::Network(ipv6::ETHERTYPE)),
            kind if kind == HDLC || HDLC_ALIKE.contains(&kind) => {
                let (header, protocol) = hdlc(bytes)?;
                Opened::behind(bytes, wire_len, header, protocol)
            }
            _ => return None,
        };
        Some(Opened { interface: Some(u32::from(self.port)), ..opened })
    }

    fn is_ethernet(&self) -> bool {
        let kind = self.kind & !MORE;
        kind == ETHERNET || ETHERNET_ALIKE.contains(&kind)
    }

    fn seconds(&self) -> u64 {
        self.stamp >> 32
    }

    /// The stamp in nanoseconds, to the nearest.
    fn time_ns(&self) -> u64 {
        let fraction = (self.stamp & 0xffff_ffff) * 1_000_000_000;
        self.seconds() * 1_000_000_000 + ((fraction + (1 << 31)) >> 32)
    }
}

#[derive(Default)]
pub(super) struct Decoder {
    fcs_len: usize,
    last_s: Option<u64>,
    unread: Unread,
}

impl Reader for Decoder {
    fn recognises(_: &[u8], path: &Path) -> bool {
        has_suffix(path, ".erf")
    }

    fn open(head: &[u8], _: &mut Notes) -> Result<(Self, usize), HeaderError> {
        if head.len() < HEADER_LEN {
            return Err(HeaderError::Cut);
        }
        let first = Record::parse(head).filter(Record::is_believed);
        first.map(|_| (Self::default(), 0)).ok_or(HeaderError::Unknown)
    }

    fn decode(&mut self, bytes: &[u8], limit: usize, sink: &mut impl Sink) -> Progress {
        let (mut at, mut taken) = (0, 0);
        while taken < limit {
            let rest = &bytes[at..];
            if rest.len() < HEADER_LEN {
                return Progress::More(at);
            }
            let Some(record) = Record::parse(rest) else {
                return Progress::Damaged(at, "a record of ERF that makes no sense".into());
            };
            let Some(whole) = rest.get(..record.length) else {
                return Progress::More(at);
            };
            at += record.length;
            self.unread.add(Reason::Dropped, u64::from(record.dropped));
            if WITHOUT_PACKET.contains(&(record.kind & !MORE)) {
                continue;
            }
            let Some(opened) = record.open(whole) else {
                self.unread.add(Reason::LinkHeader, 1);
                continue;
            };
            let time_ns = record.time_ns();
            if time_ns > LATEST_NS {
                self.unread.add(Reason::BadTime, 1);
                continue;
            }
            self.last_s = Some(record.seconds());
            let Opened { bytes, wire_len, link, interface, outgoing } = opened;
            let fcs_len = if link == Link::Ethernet { self.fcs_len } else { 0 };
            let (bytes, wire_len) = without_fcs(bytes, wire_len, fcs_len);
            sink.take(Packet {
                time_ns,
                interface: interface.unwrap_or_default(),
                outgoing,
                content: Content::Frame { bytes, wire_len, link },
            });
            taken += 1;
        }
        Progress::Full(at)
    }

    fn recover(&mut self, bytes: &[u8], ended: bool) -> Recovery {
        let end = if ended { bytes.len() } else { bytes.len() - LOOK_AHEAD / 2 };
        let last = self.last_s;
        match (1..end).find(|&start| is_chain(&bytes[start..], last, ended)) {
            Some(start) => Recovery::Record(start),
            None => Recovery::Nothing(end),
        }
    }

    fn take_off(&mut self, fcs_len: usize) {
        self.fcs_len = fcs_len;
    }

    fn note(&self, notes: &mut Notes) {
        notes.unread = self.unread;
        notes.unit_ns = 1;
        notes.fcs_len = self.fcs_len as u64;
    }
}

/// Whether a few records that could follow each other, the first of them near `last` in seconds, stand at
/// the start of the bytes. Where these are the end of the file, one up to the very end will do, or two and
/// a part of a third.
fn is_chain(mut bytes: &[u8], mut last: Option<u64>, ended: bool) -> bool {
    for place in 0..CHAIN {
        if bytes.len() < HEADER_LEN {
            return if bytes.is_empty() { place > 0 } else { ended && place > 1 };
        }
        let Some(record) = Record::parse(bytes).filter(Record::is_believed) else { return false };
        let seconds = record.seconds();
        let near = |last: u64| (last.saturating_sub(1)..=last + LONGEST_PAUSE_S).contains(&seconds);
        if !last.is_none_or(near) {
            return false;
        }
        let Some(rest) = bytes.get(record.length..) else { return ended && place > 1 };
        (last, bytes) = (Some(seconds), rest);
    }
    true
}

impl Record {
    /// Whether other bytes are not taken for it: of a kind that cards write, with more than a header, and
    /// not of 1970.
    fn is_believed(&self) -> bool {
        let kind = self.kind & !MORE;
        let known = self.is_ethernet()
            || matches!(kind, HDLC | IPV4 | IPV6)
            || HDLC_ALIKE.contains(&kind)
            || WITHOUT_PACKET.contains(&kind);
        known && self.length > HEADER_LEN && self.seconds() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of this type whose further headers and content are `rest`.
    fn record(kind: u8, wire_len: u16, rest: &[u8]) -> Vec<u8> {
        let mut bytes = (7_u64 << 32 | 1 << 31).to_le_bytes().to_vec();
        bytes.extend([kind, 0x04 | 2]);
        bytes.extend((HEADER_LEN as u16 + rest.len() as u16).to_be_bytes());
        bytes.extend([0, 5]);
        bytes.extend(wire_len.to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn records_are_read_behind_further_headers_and_without_what_fills_them_up() {
        let further = [&[0x83, 0, 0, 0, 0, 0, 0, 0][..], &[5, 0, 0, 0, 0, 0, 0, 0]].concat();
        let frame = [9; 18];
        let rest = [&further[..], &[0, 0], &frame, &[0; 4]].concat();
        for (kind, rest) in [(ETHERNET | MORE, &rest[..]), (20, &rest[further.len()..])] {
            let bytes = record(kind, 18, rest);
            let found = Record::parse(&bytes).expect("a record");
            assert_eq!((found.seconds(), found.time_ns()), (7, 7_500_000_000));
            let opened = found.open(&bytes).expect("a packet");
            assert_eq!((opened.bytes, opened.wire_len), (&frame[..], 18));
            assert_eq!((opened.link, opened.interface), (Link::Ethernet, Some(2)));
        }
        let ip = record(IPV6, 500, &[0x60; 24]);
        let opened = Record::parse(&ip).and_then(|found| found.open(&ip)).expect("a packet");
        assert_eq!((opened.bytes.len(), opened.wire_len), (24, 500));
        assert_eq!(opened.link, Link::Network(ipv6::ETHERTYPE));
    }

    #[test]
    fn only_records_that_count_drops_tell_some() {
        assert_eq!(Record::parse(&record(ETHERNET, 4, &[0; 8])).expect("one").dropped, 5);
        // There it is the colour of the packet.
        assert_eq!(Record::parse(&record(11, 4, &[0; 8])).expect("one").dropped, 0);
    }

    #[test]
    fn what_makes_no_sense_is_no_record() {
        assert!(Record::parse(&record(0, 4, &[])).is_none());
        assert!(Record::parse(&record(ETHERNET, 4, &[])[..15]).is_none());
        let endless = record(ETHERNET | MORE, 4, &[MORE; 8]);
        assert_eq!(Record::parse(&endless).and_then(|found| found.open(&endless)), None);
    }
}
