//! Packets that a file holds more than once: as exact copies, or by what devices leave of them.

use std::collections::{HashMap, VecDeque};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::capture::{Content, Packet};
use crate::key::{self, Extract};

/// Mirror ports send a copy within this time. Between equal packets of a flow more time passes.
const MOMENT_NS: u64 = 20_000;
/// No port is mirrored more often; packets that are there more often are equal.
const MOST_COPIES: usize = 4;
/// Such a share of the packets must have copies.
const RULE: f64 = 0.5;
/// So many packets of different content are looked at at once; of more a sample.
const MOST_CONTENTS: usize = 1 << 20;
/// For so long it is known which copy of a packet is the next one.
const KNOWN_NS: u64 = 5_000_000_000;

/// What packets have in common that are exact copies of each other: all that was captured.
fn content(packet: &Packet<'_>) -> Option<u64> {
    match packet.content {
        Content::Frame { bytes, wire_len, .. } => {
            Some(xxh3_64_with_seed(bytes, u64::from(wire_len)))
        }
        Content::Id(_) | Content::Mark { .. } => None,
    }
}

/// Whether a packet that came so much later is a copy, and not an equal packet.
fn is_copy(first_ns: u64, time_ns: u64) -> bool {
    time_ns.checked_sub(first_ns).is_some_and(|apart| apart <= MOMENT_NS)
}

/// Packets of one content.
struct Alike {
    /// When the first of those came that are within a moment of it, and how many these are.
    first_ns: u64,
    now: usize,
    /// The most within a moment, and how many moments there were.
    most: usize,
    moments: usize,
}

/// Finds out whether a capture has copies of packets, and whether they are the rule.
#[derive(Default)]
pub(crate) struct Copies {
    alike: HashMap<u64, Alike>,
    packets: usize,
    /// One of 2^level contents is looked at.
    level: u32,
}

impl Copies {
    pub fn add(&mut self, packet: &Packet<'_>) {
        let level = self.level;
        let Some(content) = content(packet).filter(|&content| is_sampled(content, level)) else {
            return;
        };
        self.packets += 1;
        let time_ns = packet.time_ns;
        let new = || Alike { first_ns: time_ns, now: 0, most: 0, moments: 1 };
        let alike = self.alike.entry(content).or_insert_with(new);
        if !is_copy(alike.first_ns, time_ns) {
            *alike = Alike { first_ns: time_ns, now: 0, moments: alike.moments + 1, ..*alike };
        }
        alike.now += 1;
        alike.most = alike.most.max(alike.now);
        if self.alike.len() > MOST_CONTENTS {
            self.level += 1;
            let level = self.level;
            self.alike.retain(|&content, _| is_sampled(content, level));
        }
    }

    /// How many packets have as many copies as mirror ports make, by their contents. Others of a content
    /// that came later are equal packets.
    fn copied(&self) -> impl Iterator<Item = usize> {
        let of_mirror =
            |alike: &&Alike| alike.moments == 1 && (2..=MOST_COPIES).contains(&alike.most);
        self.alike.values().filter(of_mirror).map(|alike| alike.most)
    }

    /// Whether most packets have copies.
    pub fn are_the_rule(&self) -> bool {
        self.copied().sum::<usize>() as f64 > RULE * self.packets as f64
    }

    /// Whether what is there several times within a moment are copies, and not equal packets.
    pub fn are_no_equals(&self) -> bool {
        let several = self.alike.values().filter(|alike| alike.most > 1).count();
        2 * self.copied().count() > several
    }
}

fn is_sampled(content: u64, level: u32) -> bool {
    content.trailing_zeros() >= level
}

/// The packets of the last moment.
#[derive(Default)]
pub(super) struct Recent {
    first_ns: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
}

impl Recent {
    /// Whether a packet is a copy of one that came within the last moment.
    pub fn is_copy(&mut self, packet: &Packet<'_>) -> bool {
        let time = packet.time_ns;
        while let Some(&(first_ns, content)) = self.order.front()
            && time > first_ns + MOMENT_NS
        {
            self.order.pop_front();
            if self.first_ns.get(&content) == Some(&first_ns) {
                self.first_ns.remove(&content);
            }
        }
        let Some(content) = content(packet) else { return false };
        if self.first_ns.get(&content).is_some_and(|&first_ns| is_copy(first_ns, time)) {
            return true;
        }
        self.first_ns.insert(content, time);
        self.order.push_back((time, content));
        false
    }
}

/// Counts the copies of each packet, by what devices leave of it.
pub(super) struct Counted {
    key: key::Packet,
    /// Those of the time under way, and those of the time before.
    now: HashMap<u64, u32>,
    before: HashMap<u64, u32>,
    since_ns: u64,
}

impl Counted {
    pub fn by(key: key::Packet) -> Self {
        Self { key, now: HashMap::new(), before: HashMap::new(), since_ns: 0 }
    }

    /// The how many-eth copy this packet is; 0 for one without a key.
    pub fn count(&mut self, packet: &Packet<'_>) -> u32 {
        let Ok((key, _)) = self.key.extract(packet.content) else { return 0 };
        if packet.time_ns.abs_diff(self.since_ns) > KNOWN_NS {
            self.before = std::mem::take(&mut self.now);
            self.since_ns = packet.time_ns;
        }
        let known = self.before.remove(&key).unwrap_or(0);
        let count = self.now.entry(key).or_insert(known);
        *count += 1;
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailtap_wire::link::Link;

    fn packet(time_ns: u64, bytes: &[u8]) -> Packet<'_> {
        Packet {
            time_ns,
            interface: 0,
            outgoing: None,
            content: Content::Frame { bytes, wire_len: 60, link: Link::Ethernet },
        }
    }

    fn copies(packets: impl IntoIterator<Item = (u64, u8)>) -> Copies {
        let mut copies = Copies::default();
        packets.into_iter().for_each(|(time, byte)| copies.add(&packet(time, &[byte])));
        copies
    }

    fn rule(packets: impl IntoIterator<Item = (u64, u8)>) -> bool {
        copies(packets).are_the_rule()
    }

    #[test]
    fn copies_are_the_rule_where_most_packets_have_some_within_moments() {
        let every = |gap: u64| (0..100u64).map(move |n| (n * gap, n as u8));
        let twice = |later: u64| {
            every(50_000).flat_map(move |(time, byte)| [(time, byte), (time + later, byte)])
        };
        assert!(rule(twice(2_000)));
        assert!(!rule(every(50_000)));
        // Equal packets: a flow of them, quick or slow, and pairs a millisecond apart.
        assert!(!rule((0..100).map(|n| (n * 1_000, 7))));
        assert!(!rule((0..100).map(|n| (n * 1_000_000, 7))));
        assert!(!rule(twice(1_000_000)));
        // A few copies are no rule, but copies.
        let few = || twice(2_000).filter(|&(time, byte)| byte < 20 || time % 50_000 == 0);
        assert!(!rule(few()) && copies(few()).are_no_equals());
        // A flow of equal packets, all of which are there within a moment of another now and then.
        let bursts = (0..100u64).map(|n| (n / 3 * 50_000 + n % 3, (n % 30) as u8 / 3));
        assert!(!copies(bursts).are_no_equals());
    }

    #[test]
    fn the_first_of_copies_is_taken() {
        let mut recent = Recent::default();
        let mut found = |time, byte: u8| recent.is_copy(&packet(time, &[byte]));
        assert!(!found(0, 1));
        assert!(found(2_000, 1));
        assert!(!found(3_000, 2));
        assert!(found(20_000, 1));
        assert!(!found(20_001, 1));
        assert!(!found(10_000_000, 2));
    }
}
