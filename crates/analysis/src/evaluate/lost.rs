//! Which packets were lost, and what came to the device: from the capture before it, read again.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::choose::KeyChoice;
use super::times::CommonTime;
use super::unforwarded::{Fate, Passed, Traits};
use super::{Changes, Counts, EvaluateError};
use crate::blocks::Blocks;
use crate::capture::{Capture, CaptureError, Content};
use crate::clocks::Clocks;
use crate::key::{Extract, Keeps, KeyKind, Moonsniff, Packet, Seen, Signatures};
use crate::losses::{Losses, MOST};

/// So many flows are told apart, those whose first packets come first.
const FLOWS: usize = 1 << 14;
/// The first stretches of time are so short: about a microsecond.
const SHORTEST: u32 = 10;
/// In place of a latency that was taken.
const TAKEN: u64 = u64::MAX;

/// A packet that came to the device and did not leave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPacket {
    /// Its stamp before the device in nanoseconds.
    pub ingress_ns: u64,
    /// How many packets with a key the capture has before it.
    pub position: u64,
    /// Its length on the wire in bytes, without the frame check sequence; `None` where the capture does
    /// not say it.
    pub length: Option<u32>,
    /// How many packets that follow each other were lost with it, itself among them.
    pub burst: u64,
    /// Its flow, as people see it; empty where the capture has no frames.
    pub flow: String,
    /// Its key, as people see it.
    pub key: String,
}

/// The packets of a flow before the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// As people see it; empty where the capture has no frames.
    pub name: String,
    /// Packets with a key.
    pub packets: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Latencies of the others in nanoseconds, ascending, where that was asked.
    pub latencies: Vec<u64>,
}

/// The packets with a key before the device; up to the last lost one that a row is made of, where more
/// were lost and flows were not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Their flows, in the order of their first packets: [`FLOWS`] at most.
    pub flows: Vec<Flow>,
    /// Those of all further flows.
    pub others: Flow,
    /// How many have each length, ascending; none where the capture does not say lengths.
    pub lengths: BTreeMap<u32, u64>,
    /// How many came in each stretch of time.
    pub blocks: Blocks,
}

/// What the capture before the device says when it is read again.
#[derive(Default)]
pub(super) struct Looked {
    /// The packets that were lost.
    pub lost: Vec<LostPacket>,
    /// All packets, where it was read.
    pub arrivals: Option<Arrivals>,
}

/// Reads the capture before the device again if packets were lost, or `matched` packets are given by
/// stamp, [key](Extract::known_by) and latency. Times are on the clock of the walk. Packets that are not
/// lost for all that the captures show have no row, and another place in `counts`.
pub(super) fn look(
    choice: &KeyChoice,
    losses: Losses,
    mut matched: Vec<(u64, u64, u64)>,
    common: &CommonTime,
    changes: &Changes,
    counts: &mut Counts,
) -> Result<Looked, EvaluateError> {
    let losses = losses.sorted();
    let lost = losses.packets();
    // Of later ones nobody knows whether they are among the lost.
    let all = !matched.is_empty() || lost.len() < MOST;
    let known_until_ns = lost.last().filter(|_| !all).map_or(u64::MAX, |last| last.0);
    let lost: Vec<_> = lost.iter().copied().filter(|&(time, _)| common.contains(time)).collect();
    if lost.is_empty() && matched.is_empty() {
        return Ok(Looked::default());
    }
    matched.sort_unstable();
    let routes = changes.changes.iter().any(|change| change.what == "time to live");
    let passed = Passed::new(routes);
    let look = Look { choice, lost: &lost, matched, common, known_until_ns, all, passed };
    match choice.key {
        KeyKind::Packet(packet) => look.read(packet, counts),
        KeyKind::Stream(stream) => look.read(stream, counts),
        KeyKind::Moonsniff => look.read(Moonsniff, counts),
        KeyKind::Signature => look.read(Signatures, counts),
        KeyKind::Field(field) | KeyKind::Fields([field, _]) => look.read(field, counts),
    }
}

struct Look<'a> {
    choice: &'a KeyChoice,
    /// Times and keys of the packets to be found, in order.
    lost: &'a [(u64, u64)],
    matched: Vec<(u64, u64, u64)>,
    common: &'a CommonTime,
    /// Until then it is known which packets were lost.
    known_until_ns: u64,
    /// Whether to read beyond the last lost packet that a row is made of.
    all: bool,
    passed: Passed,
}

impl Look<'_> {
    fn read<X: Extract>(
        mut self,
        extract: X,
        counts: &mut Counts,
    ) -> Result<Looked, EvaluateError> {
        const AT_ONCE: usize = 1 << 16;
        let choice = self.choice;
        let shift_ns =
            choice.ingress_shift_ns + choice.clocks.as_ref().map_or(0, Clocks::ingress_shift_ns);
        let mut capture = choice.ingress.open()?;
        let mut rows: Vec<LostPacket> = Vec::with_capacity(self.lost.len().min(MOST));
        // Of all lost packets, also those without a row: what bears on them, and their flows.
        let (mut traits, mut flows_of_lost) = (Vec::new(), Vec::new());
        let mut table = FlowTable::default();
        let (mut lengths, mut blocks) = (BTreeMap::new(), Blocks::finer(SHORTEST));
        // Packets that arrived, so far: those lost in a row have the same number.
        let (mut position, mut arrived, mut latest_ns) = (0, 0, 0);
        while capture.read(AT_ONCE, |packet| {
            if rows.len() == MOST && !self.all {
                return;
            }
            let Ok((key, shown)) = extract.extract(packet.content) else { return };
            let time = packet.time_ns.saturating_add(shift_ns);
            let (seen, length) = (flow(packet.content), length(packet.content));
            let lost = self.lost.binary_search(&(time, key)).is_ok();
            let latency = self.take_latency(time, X::known_by(key, shown));
            let known = time <= self.known_until_ns && self.common.contains(time);
            let spanned = time <= self.known_until_ns && self.common.spans(time);
            if known || spanned || latency.is_some() {
                let flow = table.flow(seen);
                flow.packets += 1;
                flow.lost += u64::from(lost);
                flow.latencies.extend(latency);
                length.into_iter().for_each(|length| *lengths.entry(length).or_default() += 1);
                latest_ns = latest_ns.max(time);
                blocks.record_all(&[latest_ns], &[0]);
            }
            if lost {
                traits.push(Traits::of(packet.content));
                flows_of_lost.push(seen);
                if rows.len() < MOST {
                    rows.push(LostPacket {
                        ingress_ns: time,
                        position,
                        length,
                        burst: arrived,
                        flow: seen.flow(),
                        key: X::name(key, shown).to_string(),
                    });
                }
            } else {
                arrived += 1;
                if known {
                    self.passed.add(packet.content);
                }
            }
            position += 1;
        })? && (self.all || rows.len() < MOST)
        {}
        let fates = self.passed.judge(&traits, &choice.ingress);
        let of = |fate| fates.iter().filter(|&&one| one == fate).count() as u64;
        (counts.not_forwarded, counts.to_device) = (of(Fate::NotForwarded), of(Fate::ToDevice));
        counts.lost -= counts.not_forwarded + counts.to_device;
        for (&seen, _) in flows_of_lost.iter().zip(&fates).filter(|(_, fate)| **fate != Fate::Lost)
        {
            table.flow(seen).lost -= 1;
        }
        let mut fates = fates.iter();
        rows.retain(|_| fates.next() == Some(&Fate::Lost));
        for burst in rows.chunk_by_mut(|one, next| one.burst == next.burst) {
            let packets = burst.len() as u64;
            burst.iter_mut().for_each(|row| row.burst = packets);
        }
        let FlowTable { mut flows, mut others, .. } = table;
        flows.iter_mut().chain([&mut others]).for_each(|flow| flow.latencies.sort_unstable());
        Ok(Looked { lost: rows, arrivals: Some(Arrivals { flows, others, lengths, blocks }) })
    }

    /// The latency of a packet that was matched. Each is taken once, as packets may share their key and
    /// stamp.
    fn take_latency(&mut self, time: u64, key: u64) -> Option<u64> {
        let first = self.matched.partition_point(|one| (one.0, one.1) < (time, key));
        let mut equal =
            self.matched[first..].iter_mut().take_while(|one| (one.0, one.1) == (time, key));
        let taken = |one: &mut (u64, u64, u64)| std::mem::replace(&mut one.2, TAKEN);
        equal.find(|one| one.2 != TAKEN).map(taken)
    }
}

/// The flows that were seen so far.
#[derive(Default)]
struct FlowTable {
    places: HashMap<Seen, usize>,
    flows: Vec<Flow>,
    others: Flow,
}

impl FlowTable {
    fn flow(&mut self, seen: Seen) -> &mut Flow {
        let next = self.flows.len();
        let place = match self.places.entry(seen) {
            Entry::Vacant(_) if next == FLOWS => return &mut self.others,
            entry => *entry.or_insert(next),
        };
        if place == next {
            self.flows.push(Flow { name: seen.flow(), ..Flow::default() });
        }
        &mut self.flows[place]
    }
}

/// The flows of the packets of a capture that have some stamps, which ascend, as people see them: empty
/// where it has no frames, and where packets of several flows have one stamp.
pub fn flows_at(path: &Path, stamps_ns: &[u64]) -> Result<Vec<String>, CaptureError> {
    const AT_ONCE: usize = 1 << 16;
    let mut found: Vec<Option<Seen>> = vec![None; stamps_ns.len()];
    let mut capture = Capture::open(path, None)?;
    while capture.read(AT_ONCE, |packet| {
        let Ok(place) = stamps_ns.binary_search(&packet.time_ns) else { return };
        let seen = flow(packet.content);
        let one = found[place].is_none_or(|before| before == seen);
        found[place] = Some(if one { seen } else { Seen::default() });
    })? {}
    Ok(found.into_iter().map(|seen| seen.unwrap_or_default().flow()).collect())
}

fn length(content: Content<'_>) -> Option<u32> {
    match content {
        Content::Frame { wire_len, .. } | Content::Mark { wire_len, .. } => Some(wire_len),
        Content::Id(_) => None,
    }
}

/// What the packets of its flow have in common; that of no flow where the capture has no frames.
fn flow(content: Content<'_>) -> Seen {
    // Nothing of the payload, so that it may be cut off.
    let headers = Packet { keeps: Keeps::Flow, most: 0 };
    headers.extract(content).map_or(Seen::default(), |(_, seen)| seen.of_flow())
}
