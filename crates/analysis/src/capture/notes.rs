//! What is found out about a capture besides its packets.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Trailer;
use crate::key::KeyKind;
use crate::marks::{IN_FLIGHT_NS, Sample};
use crate::stamps::{Clock, TapCounts};

/// Why nothing can be made of a capture from some place on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Position in the (decompressed) file.
    pub byte: u64,
    /// What is wrong there.
    pub why: String,
}

/// Why packets that a capture holds, or should hold, were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Of a link type that is not read.
    LinkType,
    /// Without a stamp: simple packet blocks of pcapng.
    NoTime,
    /// Of an interface that the file does not describe.
    NoInterface,
    /// With a stamp that cannot be true.
    BadTime,
    /// In a block that is damaged.
    Damaged,
    /// Blocks of a type that tailtap does not know; they may hold packets.
    UnknownBlock,
    /// Not in the file: the program that captured dropped them, and says so.
    Dropped,
    /// Behind a link's header that is cut off or names no protocol.
    LinkHeader,
    /// Without a switch's trailer, where the stamps are those of trailers.
    NoTrailer,
}

/// No count of ours is larger, whatever a capture says of itself.
const MOST: u64 = 1 << 61;

/// How many packets were not read, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread([u64; 9]);

impl Unread {
    /// The names of the reasons, in their order.
    const NAMES: [&'static str; 9] = [
        "link-type",
        "without-time",
        "without-interface",
        "impossible-time",
        "damaged",
        "unknown-block",
        "dropped",
        "link-header",
        "without-trailer",
    ];

    /// Counts packets.
    pub fn add(&mut self, reason: Reason, packets: u64) {
        let count = &mut self.0[reason as usize];
        *count = count.saturating_add(packets).min(MOST);
    }

    /// How many there are of a reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, &count| sum.saturating_add(count).min(MOST))
    }

    /// Each reason's name and count.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::NAMES.into_iter().zip(self.0)
    }

    /// Adds those of another part of the capture.
    pub fn merge(&mut self, other: &Self) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(mine, theirs)| *mine = mine.saturating_add(theirs).min(MOST));
    }
}

/// Places of a file of which nothing could be made, and behind which reading went on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// How many places.
    pub places: u64,
    /// How many bytes in all.
    pub bytes: u64,
    /// The first of them.
    pub first: Option<Damage>,
    /// No more packets can have stood there.
    pub packets_at_most: u64,
}

impl Skipped {
    /// Adds those of the part of the capture that follows.
    pub fn merge(&mut self, next: Self) {
        self.places += next.places;
        self.bytes += next.bytes;
        self.packets_at_most += next.packets_at_most;
        self.first = self.first.take().or(next.first);
    }
}

/// A record's place in a file that is not compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where the record begins.
    pub offset: u64,
    /// Its time in nanoseconds.
    pub time_ns: u64,
}

/// An interface that a file describes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// What the file calls it, if it does.
    pub name: Option<String>,
    /// The unit of its stamps in nanoseconds.
    pub unit_ns: u64,
}

/// What a file of marks says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// What its hashes are of.
    pub key: KeyKind,
    /// Bytes of the payload that are in a key, at most.
    pub most: u32,
    /// Its samples, at least one.
    pub samples: Vec<Sample>,
    /// Packets that were not in the sample; 0 where the file was not closed.
    pub unsampled: u64,
    /// Packets that the tap's filter left out.
    pub filtered: u64,
    /// Packets in the file that were not taken, as the other side has a thinner sample.
    pub thinned: u64,
}

impl Marked {
    /// The densest of the samples.
    pub fn least_level(&self) -> u8 {
        self.samples.iter().map(|sample| sample.level).min().unwrap_or_default()
    }

    /// The times after a change of the sample in which packets behind the device may have passed before
    /// it while they were not in the sample there.
    pub fn changes(&self) -> impl Iterator<Item = Range<u64>> {
        let begins = self.samples.iter().skip(1).map(|sample| sample.since_ns);
        begins.map(|begin| begin..begin.saturating_add(IN_FLIGHT_NS))
    }
}

/// What was found out about a capture while reading it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Packets read.
    pub packets: u64,
    /// Why reading stopped before the end of the file.
    pub damage: Option<Damage>,
    /// Places that were skipped.
    pub skipped: Skipped,
    /// Packets that were not read.
    pub unread: Unread,
    /// The link type of packets that were not read for it; the last one where there are several.
    pub foreign_linktype: Option<u32>,
    /// The unit of the stamps in nanoseconds as the file has it, the coarsest of its interfaces; 0
    /// where nothing was read.
    pub unit_ns: u64,
    /// The interfaces that the file describes, by their numbers.
    pub interfaces: Vec<Interface>,
    /// The bytes of the frame check sequence that were taken off the frames' ends, the most.
    pub fcs_len: u64,
    /// The trailers that the stamps were taken from.
    pub trailer: Option<Trailer>,
    /// How often mscap's time jumped back by 2^32 ns and was unwrapped.
    pub unwrapped: u64,
    /// The tap's own counts, from a stamp file that was closed.
    pub tap: Option<TapCounts>,
    /// A stamp file that was not closed: the tap still runs, or was killed.
    pub unclosed: bool,
    /// The clock of the stamps, where the file says it.
    pub clock: Option<Clock>,
    /// What a file of marks says of itself.
    pub marked: Option<Marked>,
    /// Size of the file in bytes when it was opened, compressed or not.
    pub size: u64,
    /// Its size later, if another program changed it in between: a capture that still runs.
    pub resized: Option<u64>,
}

impl Notes {
    /// Why packets were not read, in words, with their numbers; nothing for those that a capture says were
    /// dropped.
    pub fn reasons(&self) -> Option<String> {
        let unread = &self.unread;
        let words = |reason, what: &str| {
            let count = unread.of(reason);
            (count > 0).then(|| format!("{count} {what}"))
        };
        let linktype =
            self.foreign_linktype.map_or(String::new(), |linktype| format!(" {linktype}"));
        let found: Vec<String> = [
            words(Reason::LinkType, &format!("of link type{linktype}, which is not read")),
            words(Reason::NoTime, "without a stamp (simple packet blocks)"),
            words(Reason::NoInterface, "of interfaces that the file does not describe"),
            words(Reason::BadTime, "with an impossible stamp"),
            words(
                Reason::LinkHeader,
                "behind a link's header that is cut off or names no protocol",
            ),
            words(Reason::NoTrailer, "without a switch's trailer"),
            words(Reason::Damaged, "blocks that are damaged"),
            words(Reason::UnknownBlock, "blocks of unknown types"),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!found.is_empty()).then(|| found.join(", "))
    }

    /// Looks whether the file's size has changed since it was opened.
    pub(crate) fn look_again(&mut self, path: &Path) {
        let now = std::fs::metadata(path).map_or(self.size, |metadata| metadata.len());
        self.resized = (now != self.size).then_some(now);
    }
}
