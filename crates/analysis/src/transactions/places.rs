//! Where the packets of one capture were taken, and which of them are copies.
//!
//! A capture of all interfaces of a router, or of several ports of a switch, shows packets at several
//! places. A wait is from a request to its answer at one of them. So places are told apart where the
//! first packets show that they are several, and that each of them sees both directions.

use std::collections::{HashMap, HashSet, VecDeque};

use tailtap_wire::ethernet::Mac;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::book::ByKey;
use super::packet::{Packet, Part};
use crate::capture::CaptureError;
use crate::key::{self, Extract, Keeps};
use crate::source::{Source, macs, vlan};

/// So many packets are looked at.
const LOOK: usize = 1 << 14;
/// One packet in so many must be there several times, and so many of those that have copies.
const FEW: usize = 100;
const LEAST: usize = 16;
/// Mirror ports send copies within this time; a packet that comes more often than so is no copy.
const MOMENT_NS: u64 = 10_000_000;
const MOST_COPIES: usize = 4;
/// So many pairs of ends are remembered.
const MOST_ENDS: usize = 1 << 16;

/// What tells places apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// The interface, as the capture numbers them.
    Interface,
    /// Whether requests are received there, or sent on.
    Passage,
    Vlan,
    /// The hardware address of the device that packets pass.
    Hardware,
}

/// Tells places apart.
#[derive(Default)]
pub(super) struct Places {
    sign: Option<Sign>,
    devices: HashSet<Mac>,
    /// Whether the lower one of two ends sent the first packet.
    askers: ByKey<bool>,
}

impl Places {
    /// What the first packets of a capture show: its places, and whether there are copies.
    pub fn survey(source: &Source, part: Part) -> Result<(Self, bool), CaptureError> {
        let mut found = Self::default();
        let mut seen: Vec<Seen> = Vec::new();
        source.open()?.read(LOOK, |packet| {
            let Some(packet) = Packet::of(&packet, 0, part) else { return };
            let key = key::Packet::new(Keeps::All).extract(packet.content());
            let (ends, low) = packet.ends().sorted();
            seen.push(Seen {
                time_ns: packet.time_ns,
                key: key.ok().filter(|_| packet.inner.is_some()).map(|found| found.0),
                content: content(&packet),
                ends: ends.hash(0),
                low,
                macs: macs(packet.frame, packet.link),
                places: [Sign::Interface, Sign::Passage, Sign::Vlan]
                    .map(|sign| found.by(sign, &packet)),
            });
        })?;
        // Who sent a packet on shows in which of its frames came first.
        seen.sort_by_key(|one| one.time_ns);
        let copied = groups(&seen, |one| Some(one.content)).filter(|group| {
            let apart_ns = group[group.len() - 1].time_ns.abs_diff(group[0].time_ns);
            group.len() <= MOST_COPIES && apart_ns < MOMENT_NS
        });
        let copied = copied.map(|group| group.len()).collect::<Vec<_>>();
        let copied = copied.len() >= LEAST && copied.iter().sum::<usize>() * FEW > seen.len();
        if part == Part::Both {
            let pairs = groups(&seen, |one| one.key);
            let pairs = pairs.filter_map(|group| group[0].macs.zip(group[1].macs));
            let passed = pairs.filter(|(one, other)| one[0] != other[0]);
            found.devices = passed.flat_map(|(one, other)| [one[1], other[0]]).collect();
            let signs = [Sign::Interface, Sign::Passage, Sign::Vlan, Sign::Hardware];
            let place = |one: &Seen, at: usize| match at {
                3 => one.macs.map(|macs| found.device(macs)),
                _ => one.places[at],
            };
            found.sign = (0..4).find(|at| tells(&seen, |one| place(one, *at))).map(|at| signs[at]);
        }
        found.askers.clear();
        Ok((found, copied))
    }

    /// The place of a packet.
    pub fn of(&mut self, packet: &Packet<'_>) -> u64 {
        self.sign.and_then(|sign| self.by(sign, packet)).unwrap_or(0)
    }

    fn by(&mut self, sign: Sign, packet: &Packet<'_>) -> Option<u64> {
        match sign {
            Sign::Interface => Some(u64::from(packet.interface)),
            Sign::Passage => {
                let sent = packet.outgoing?;
                let ends = packet.ends();
                let local = ends.is_local();
                let (ends, low) = ends.sorted();
                if self.askers.len() >= MOST_ENDS {
                    self.askers.clear();
                }
                let asks = *self.askers.entry(ends.hash(0)).or_insert(low) == low;
                // What a machine says to itself it only receives.
                Some(u64::from(sent == asks && !local))
            }
            Sign::Vlan => Some(vlan(packet.frame, packet.link).map_or(0, |id| 1 + u64::from(id))),
            Sign::Hardware => macs(packet.frame, packet.link).map(|macs| self.device(macs)),
        }
    }

    /// The device among both ends of a frame, where it is one of them; else 0.
    fn device(&self, macs: [Mac; 2]) -> u64 {
        let [one, other] = macs.map(|mac| self.devices.contains(&mac));
        let number = |mac: Mac| mac.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if one == other { 0 } else { number(macs[usize::from(other)]) }
    }

    /// What people call a place, where there are several.
    pub fn name(&self, place: u64) -> Option<String> {
        Some(match (self.sign?, place) {
            (Sign::Interface, number) => format!("interface-{number}"),
            (Sign::Passage, sent) => ["received", "sent"][sent as usize].to_owned(),
            (Sign::Vlan | Sign::Hardware, 0) => "others".to_owned(),
            (Sign::Vlan, id) => format!("vlan-{}", id - 1),
            (Sign::Hardware, mac) => format!("mac-{mac:012x}"),
        })
    }
}

/// What is seen of a packet.
struct Seen {
    time_ns: u64,
    key: Option<u64>,
    content: u64,
    ends: u64,
    low: bool,
    macs: Option<[Mac; 2]>,
    places: [Option<u64>; 3],
}

/// Packets that have something in common.
fn groups(seen: &[Seen], by: fn(&Seen) -> Option<u64>) -> impl Iterator<Item = Vec<&Seen>> {
    let mut groups: HashMap<u64, Vec<&Seen>> = HashMap::new();
    for one in seen {
        if let Some(by) = by(one) {
            groups.entry(by).or_default().push(one);
        }
    }
    groups.into_values().filter(|group| group.len() > 1)
}

/// Whether packets are there several times, most of these at several places, and most of the places see
/// both directions of what passes both ways.
fn tells(seen: &[Seen], place: impl Fn(&Seen) -> Option<u64>) -> bool {
    let (mut apart, mut alike, mut ends) = (0, 0, HashSet::new());
    for group in groups(seen, |one| one.key) {
        let same = group.iter().all(|one| place(one) == place(group[0]));
        *(if same { &mut alike } else { &mut apart }) += group.len();
        ends.extend(group.iter().filter(|_| !same).map(|one| one.ends));
    }
    let mut ways: HashMap<u64, HashMap<Option<u64>, [bool; 2]>> = HashMap::new();
    for one in seen.iter().filter(|one| ends.contains(&one.ends)) {
        let ways = ways.entry(one.ends).or_default().entry(place(one)).or_default();
        ways[usize::from(one.low)] = true;
    }
    let (mut both, mut any) = (0, 0);
    for places in ways.values() {
        let all = [0, 1].map(|way| places.values().any(|ways| ways[way]));
        any += if all == [true; 2] { places.len() } else { 0 };
        both += places.values().filter(|ways| **ways == [true; 2]).count();
    }
    apart * FEW > seen.len() && apart > alike && 2 * both > any
}

fn content(packet: &Packet<'_>) -> u64 {
    xxh3_64_with_seed(packet.frame, (packet.part as u64) << 32 | u64::from(packet.wire_len))
}

/// The packets of the last moment at a place.
#[derive(Default)]
pub(super) struct Recent {
    seen: ByKey<usize>,
    order: VecDeque<(u64, u64)>,
}

impl Recent {
    /// Whether a packet is a copy of one that came within the last moment.
    pub fn is_copy(&mut self, packet: &Packet<'_>) -> bool {
        while let Some(&(time_ns, content)) = self.order.front()
            && packet.time_ns >= time_ns + MOMENT_NS
        {
            self.order.pop_front();
            self.seen.remove(&content);
        }
        let content = content(packet);
        let count = self.seen.entry(content).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.order.push_back((packet.time_ns, content));
        }
        (2..=MOST_COPIES).contains(count)
    }
}
