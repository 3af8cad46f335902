//! The packets of a source in time order, in bounded memory.
//!
//! Captures of several queues are a little out of order. So some packets are held back, and sorted with
//! those that follow. What comes later than that is left out, and counted; then all of the source may be
//! sorted in memory, where it is not too large.

use tailtap_wire::link::Link;

use super::packet::{Packet, Part};
use crate::capture::{self, CaptureError, Content, LATEST_NS};
use crate::source::{Feed, Source};

/// So many packets are read at a time, of no more than so many bytes.
const BATCH: usize = 1 << 12;
/// So many packets are held back.
const HELD: usize = 1 << 11;

/// Where a packet is in memory.
#[derive(Clone, Copy)]
struct Held {
    time_ns: u64,
    at: usize,
    len: usize,
    wire_len: u32,
    link: Link,
    interface: u32,
    outgoing: Option<bool>,
}

/// A source being read.
pub(super) struct InOrder {
    pub feed: Feed,
    pub part: Part,
    /// How many packets are held back, and how many bytes all packets have that were read.
    hold: usize,
    pub read_bytes: u64,
    /// Whether there are copies of packets, and how many were left out.
    pub copied: bool,
    pub copies: u64,
    bytes: Vec<u8>,
    /// Memory for the bytes of those held back.
    spare: Vec<u8>,
    packets: Vec<Held>,
    /// How many of them were taken.
    taken: usize,
    /// How many of them may be taken.
    ready: usize,
    more: bool,
    /// Whether the capture holds frames.
    pub frames: bool,
    /// Stamps that are earlier than the one before, and by how much at most.
    pub backwards: u64,
    pub largest_step_ns: u64,
    /// Packets that came too late to be sorted.
    pub late: u64,
    last_ns: u64,
    taken_ns: u64,
    pub first_ns: Option<u64>,
}

impl InOrder {
    /// Opens a source; with `sorted`, all of it is read before its first packet is taken.
    pub fn open(source: &Source, part: Part, sorted: bool) -> Result<Self, CaptureError> {
        let mut opened = Self {
            feed: source.open()?,
            part,
            hold: if sorted { usize::MAX } else { HELD },
            read_bytes: 0,
            copied: false,
            copies: 0,
            bytes: Vec::new(),
            spare: Vec::new(),
            packets: Vec::new(),
            taken: 0,
            ready: 0,
            more: true,
            frames: true,
            backwards: 0,
            largest_step_ns: 0,
            late: 0,
            last_ns: 0,
            taken_ns: 0,
            first_ns: None,
        };
        opened.refill()?;
        Ok(opened)
    }

    /// Time of the next packet.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.packets.get(self.taken).filter(|_| self.taken < self.ready).map(|held| held.time_ns)
    }

    /// The next packet, whose place among all is `number`.
    #[inline]
    pub fn peek(&self, number: u64) -> Option<Packet<'_>> {
        let held = self.packets.get(self.taken).filter(|_| self.taken < self.ready)?;
        let &Held { time_ns, at, len, wire_len, link, interface, outgoing } = held;
        let content = Content::Frame { bytes: &self.bytes[at..at + len], wire_len, link };
        let packet = capture::Packet { time_ns, interface, outgoing, content };
        Packet::of(&packet, number, self.part)
    }

    /// Goes on behind the packet that [`Self::peek`] shows.
    #[inline]
    pub fn advance(&mut self) -> Result<(), CaptureError> {
        self.taken_ns = self.packets[self.taken].time_ns;
        self.taken += 1;
        if self.taken >= self.ready { self.refill() } else { Ok(()) }
    }

    fn refill(&mut self) -> Result<(), CaptureError> {
        self.drop_taken();
        while self.more && self.ready == 0 {
            let Self { bytes, packets, frames, first_ns, read_bytes, .. } = self;
            let begin = packets.len();
            self.more = self.feed.read(BATCH, |packet| {
                let Content::Frame { bytes: frame, wire_len, link } = packet.content else {
                    *frames = false;
                    return;
                };
                let (at, len) = (bytes.len(), frame.len());
                *read_bytes += len as u64;
                let time_ns = packet.time_ns.min(LATEST_NS);
                bytes.extend_from_slice(frame);
                let capture::Packet { interface, outgoing, .. } = packet;
                packets.push(Held { time_ns, at, len, wire_len, link, interface, outgoing });
            })?;
            for held in &packets[begin..] {
                if held.time_ns < self.last_ns {
                    self.backwards += 1;
                    self.largest_step_ns = self.largest_step_ns.max(self.last_ns - held.time_ns);
                }
                self.last_ns = held.time_ns;
            }
            if self.more && self.hold == usize::MAX {
                continue;
            }
            if !packets.is_sorted_by_key(|held| held.time_ns) {
                packets.sort_by_key(|held| held.time_ns);
            }
            let late = packets.partition_point(|held| held.time_ns < self.taken_ns);
            self.late += late as u64;
            packets.drain(..late);
            *first_ns = first_ns.or_else(|| packets.first().map(|held| held.time_ns));
            self.ready = packets.len().saturating_sub(if self.more { self.hold } else { 0 });
        }
        Ok(())
    }

    /// Makes room; those held back stay.
    fn drop_taken(&mut self) {
        self.packets.drain(..self.taken);
        (self.taken, self.ready) = (0, 0);
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        for held in &mut self.packets {
            let at = bytes.len();
            bytes.extend_from_slice(&self.bytes[held.at..held.at + held.len]);
            held.at = at;
        }
        self.spare = std::mem::replace(&mut self.bytes, bytes);
    }
}
