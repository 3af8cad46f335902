//! What a tap writes: stamp files, captures in the format of pcap with nanoseconds, or marks.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use tailtap_analysis::capture::Content;
use tailtap_analysis::key::{KeyKind, Sampling};
use tailtap_analysis::marks::{self, MOST_LEVEL, Mark, MarkCounts, Sample};
use tailtap_analysis::stamps::{Clock, Header, RECORD_LEN};
use tailtap_wire::ethernet::ADDRESSES_LEN;
use tailtap_wire::link::Link;
use tailtap_wire::vlan;

use crate::tap::program::PACKET_WORDS;
use crate::tap::ring::Record;

/// Magic of a pcap with nanoseconds, as its writer sees it.
const PCAP_MAGIC: u32 = 0xa1b2_3c4d;
const PCAP_HEADER_LEN: usize = 24;
const PCAP_RECORD_LEN: usize = 16;
const LINKTYPE_ETHERNET: u32 = 1;
const LINKTYPE_RAW: u32 = 101;
/// Of `tag` in `struct packet`: there is one.
const TAG_PRESENT: u64 = 1 << 32;
/// Bytes in front of each packet in the store: its lengths and its tag.
const STORED_LEN: usize = 16;
/// Above these bits of `tag` stand the lowest of the hash by which samples are taken.
const TAG_BITS: u32 = 33;
/// These bits where the kernel's side computed none, as all packets are stamped.
const NOT_HASHED: u64 = u64::MAX >> TAG_BITS;
/// So many bytes of a payload are in a mark's key at most.
pub const MOST_PAYLOAD: u32 = 160;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Time and id of each packet with an id.
    Stamps,
    /// The first bytes of every packet, at most so many.
    Pcap {
        /// The most bytes of a packet.
        snap: u32,
        /// Whether packets are frames of Ethernet; else they begin with IP.
        ethernet: bool,
    },
    /// Time, hash and length of every packet with a key, and no byte of it.
    Marks(Marking),
}

/// How marks are made of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// What the hash is of.
    pub key: KeyKind,
    /// So many first bytes of a packet are looked at.
    pub snap: u32,
    /// What the hash is made of by which samples are taken, if they are.
    pub sampling: Option<Sampling>,
    /// Whether the packets leave through the interface.
    pub left: bool,
    /// Whether they are frames of Ethernet; else they begin with IP.
    pub ethernet: bool,
}

/// What becomes of a packet of which a mark should be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// The mark is in the store, at this place.
    At(u64),
    /// The packet has no key.
    NoKey,
}

/// The packets that belong to records; nothing where records are stamps. The second word of such a
/// record is then the packet's place in here.
#[derive(Debug, Default)]
pub struct Store {
    bytes: Vec<u8>,
    /// The place of the first byte that is still there.
    begin: u64,
    /// A packet as on the wire.
    frame: Vec<u8>,
    /// Packets of which the kernel's side had another hash for samples.
    pub strange: u64,
}

impl Store {
    /// Takes a packet from the ring: `lengths` and what follows them in its slot. Its place.
    pub fn take(&mut self, lengths: u64, rest: &[AtomicU64]) -> u64 {
        let place = self.begin + self.bytes.len() as u64;
        let kept = lengths as u16 as usize;
        let tag = rest[0].load(Ordering::Relaxed);
        self.bytes.extend_from_slice(&lengths.to_le_bytes());
        self.bytes.extend_from_slice(&tag.to_le_bytes());
        let end = self.bytes.len() + kept;
        for word in &rest[PACKET_WORDS - 2..][..kept.div_ceil(8)] {
            self.bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        self.bytes.truncate(end);
        place
    }

    /// Makes a mark of a packet from the ring: `lengths` and what follows them in its slot.
    pub fn mark(&mut self, marking: &Marking, lengths: u64, rest: &[AtomicU64]) -> Marked {
        let kept = lengths as u16 as usize;
        let wire_len = (lengths >> 32) as u32;
        let tag = rest[0].load(Ordering::Relaxed);
        self.frame.clear();
        for word in &rest[PACKET_WORDS - 2..][..kept.div_ceil(8)] {
            self.frame.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        self.frame.truncate(kept);
        if tag & TAG_PRESENT != 0 && kept >= ADDRESSES_LEN {
            let tag = vlan::tag((tag >> 16) as u16, tag as u16);
            self.frame.splice(ADDRESSES_LEN..ADDRESSES_LEN, tag);
        }
        let link = if marking.ethernet { Some(Link::Ethernet) } else { Link::of_ip(&self.frame) };
        let Some(link) = link else { return Marked::NoKey };
        let content = Content::Frame { bytes: &self.frame, wire_len, link };
        let Some(key) = marking.key.of(content) else { return Marked::NoKey };
        let level = marking.sampling.map_or(0, |sampling| {
            let ours = sampling.hash(marking.key, content) << TAG_BITS >> TAG_BITS;
            let hash = Some(tag >> TAG_BITS).filter(|&hash| hash != NOT_HASHED).unwrap_or(ours);
            self.strange += u64::from(hash != ours);
            hash.trailing_zeros().min(u32::from(MOST_LEVEL)) as u8
        });
        let place = self.begin + self.bytes.len() as u64;
        let cpu = ((lengths >> 16) as u16).checked_sub(1);
        let mark = Mark { time_ns: 0, key, frame_len: wire_len, left: marking.left, level, cpu };
        self.bytes.extend_from_slice(&mark.encode());
        Marked::At(place)
    }

    /// The mark at a place; its time is not in the store.
    fn marked(&self, place: u64) -> Mark {
        let bytes = &self.bytes[(place - self.begin) as usize..];
        Mark::decode(bytes.first_chunk().expect("a whole mark"))
    }

    /// Forgets what is before the first of `kept`, if that is worth the effort.
    pub fn forget(&mut self, kept: &[Record]) {
        let end = self.begin + self.bytes.len() as u64;
        let first = kept.iter().map(|record| record[1]).min().unwrap_or(end);
        let unused = (first - self.begin) as usize;
        if unused > self.bytes.len() / 2 {
            self.bytes.drain(..unused);
            self.begin = first;
        }
    }

    /// Lengths, tag and bytes of the packet at a place.
    fn get(&self, place: u64) -> (u64, u64, &[u8]) {
        let at = &self.bytes[(place - self.begin) as usize..];
        let (head, rest) = at.split_at(STORED_LEN);
        let word = |at| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let lengths = word(0);
        (lengths, word(8), &rest[..lengths as u16 as usize])
    }
}

impl Format {
    /// The start of a file. A pcap does not say its clock, the link and the counts, which are known at
    /// the end; only marks say of what samples they are.
    pub fn header(
        self,
        clock: Clock,
        link: &str,
        counts: Option<MarkCounts>,
        samples: &[Sample],
    ) -> Vec<u8> {
        match self {
            Self::Stamps => {
                let counts = counts.map(|counts| counts.tap);
                Header { clock, counts, link: link.into() }.encode().into()
            }
            Self::Marks(Marking { key, .. }) => {
                let (samples, link, key) = (samples.to_vec(), link.into(), key.to_string());
                marks::Header { clock, counts, most: MOST_PAYLOAD, samples, link, key }.encode()
            }
            Self::Pcap { snap, ethernet } => {
                let link_type = if ethernet { LINKTYPE_ETHERNET } else { LINKTYPE_RAW };
                let mut bytes = Vec::with_capacity(PCAP_HEADER_LEN);
                bytes.extend_from_slice(&PCAP_MAGIC.to_le_bytes());
                bytes.extend_from_slice(&[2, 0, 4, 0]); // version 2.4
                bytes.extend_from_slice(&[0; 8]);
                bytes.extend_from_slice(&snap.to_le_bytes());
                bytes.extend_from_slice(&link_type.to_le_bytes());
                bytes
            }
        }
    }

    /// Whether the header has the counts, so that it is written again at the end.
    pub fn has_counts(self) -> bool {
        !matches!(self, Self::Pcap { .. })
    }

    /// Whether a record is in the store, and its place there the second word.
    pub fn is_stored(self) -> bool {
        self != Self::Stamps
    }

    /// Appends a record, its time put forward by `shift`.
    pub fn encode(self, record: Record, shift: u64, store: &Store, into: &mut Vec<u8>) {
        let time = record[0].wrapping_add(shift);
        match self {
            Self::Stamps => {
                into.extend_from_slice(&time.to_le_bytes());
                into.extend_from_slice(&record[1].to_le_bytes());
            }
            Self::Marks(_) => {
                let mark = Mark { time_ns: time, ..store.marked(record[1]) };
                into.extend_from_slice(&mark.encode());
            }
            Self::Pcap { snap, .. } => {
                let (lengths, tag, bytes) = store.get(record[1]);
                let (before, after) = bytes.split_at(ADDRESSES_LEN.min(bytes.len()));
                let has_tag = tag & TAG_PRESENT != 0 && before.len() == ADDRESSES_LEN;
                let whole = bytes.len() + if has_tag { vlan::LEN } else { 0 };
                let kept = whole.min(snap as usize);
                let start = into.len() + PCAP_RECORD_LEN;
                let (seconds, ns) = (time / 1_000_000_000, time % 1_000_000_000);
                for word in [seconds as u32, ns as u32, kept as u32, (lengths >> 32) as u32] {
                    into.extend_from_slice(&word.to_le_bytes());
                }
                into.extend_from_slice(before);
                if has_tag {
                    into.extend_from_slice(&vlan::tag((tag >> 16) as u16, tag as u16));
                }
                into.extend_from_slice(after);
                into.truncate(start + kept);
            }
        }
    }

    /// How many of the first bytes of `records` are whole records, and how many those are, if no
    /// more than `room` bytes found room.
    pub fn whole(self, records: &[u8], room: usize) -> (usize, u64) {
        let (mut at, mut count) = (0, 0);
        loop {
            let next = at
                + match self {
                    Self::Stamps => RECORD_LEN,
                    Self::Marks(_) => marks::RECORD_LEN,
                    Self::Pcap { .. } => match records.get(at + 8..at + 12) {
                        Some(kept) => {
                            let kept = u32::from_le_bytes(kept.try_into().expect("four bytes"));
                            PCAP_RECORD_LEN + kept as usize
                        }
                        None => return (at, count),
                    },
                };
            if next > room.min(records.len()) {
                return (at, count);
            }
            (at, count) = (next, count + 1);
        }
    }
}

/// A text that names no clock.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no clock {0:?} for a tap: give --clock monotonic, realtime, hardware or software"
)]
pub struct ParseClockError(String);

/// The clock of the times in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapClock(pub Clock);

impl FromStr for TapClock {
    type Err = ParseClockError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = [Clock::Monotonic, Clock::Realtime];
        let found = known.into_iter().find(|clock| clock.name() == text);
        found.map(Self).ok_or_else(|| ParseClockError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(store: &mut Store, frame: &[u8], wire: u64, tag: u64) -> u64 {
        let mut padded = frame.to_vec();
        padded.resize(frame.len().next_multiple_of(8) + 16, 0xee);
        let words = padded.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("8")));
        let rest: Vec<AtomicU64> = std::iter::once(tag).chain(words).map(AtomicU64::new).collect();
        store.take(frame.len() as u64 | wire << 32, &rest)
    }

    #[test]
    fn packets_come_out_as_they_went_in_with_the_tag_in_its_place() {
        let mut store = Store::default();
        let frame: Vec<u8> = (0..61).collect();
        let plain = take(&mut store, &frame, 61, 0);
        let tagged = take(&mut store, &frame[..40], 65, TAG_PRESENT | 0x8100_0005);
        let format = Format::Pcap { snap: 42, ethernet: true };
        let mut bytes = Vec::new();
        format.encode([5_000_000_007, tagged], 1_000_000_000, &store, &mut bytes);
        let words: Vec<u32> =
            bytes[..16].chunks(4).map(|c| u32::from_le_bytes(c.try_into().expect("4"))).collect();
        assert_eq!(words, [6, 7, 42, 65]);
        assert_eq!(bytes[16..][..12], frame[..12]);
        assert_eq!(bytes[28..32], [0x81, 0, 0, 5]);
        assert_eq!(bytes[32..], frame[12..38]);
        bytes.clear();
        Format::Pcap { snap: 100, ethernet: true }.encode([1, plain], 0, &store, &mut bytes);
        assert_eq!(bytes[16..], frame[..]);
    }

    #[test]
    fn a_store_forgets_and_keeps_places() {
        let mut store = Store::default();
        let places: Vec<u64> = (0..10u8).map(|n| take(&mut store, &[n; 20], 20, 0)).collect();
        store.forget(&[[0, places[9]], [0, places[7]]]);
        assert!(store.begin == places[7]);
        let more = take(&mut store, &[77; 9], 9, 0);
        assert_eq!(store.get(places[8]).2, [8; 20]);
        assert_eq!(store.get(more).2, [77; 9]);
        store.forget(&[]);
        assert!(store.bytes.is_empty());
    }

    #[test]
    fn only_whole_records_count() {
        assert_eq!(Format::Stamps.whole(&[0; 64], 47), (32, 2));
        let mut store = Store::default();
        let place = take(&mut store, &[1; 20], 20, 0);
        let format = Format::Pcap { snap: 64, ethernet: true };
        let mut bytes = Vec::new();
        for _ in 0..3 {
            format.encode([1, place], 0, &store, &mut bytes);
        }
        assert_eq!(format.whole(&bytes, 71), (36, 1));
        assert_eq!(format.whole(&bytes, 1000), (108, 3));
        assert_eq!(format.whole(&[], 0), (0, 0));
    }

    #[test]
    fn a_tap_reads_no_other_clock() {
        assert_eq!("realtime".parse::<TapClock>().expect("known").0, Clock::Realtime);
        assert!("hardware".parse::<TapClock>().is_err());
    }
}
