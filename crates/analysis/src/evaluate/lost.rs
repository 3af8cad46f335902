//! Which packets were lost: a row for each, from the capture before the device.

use super::choose::KeyChoice;
use super::partial::CommonTime;
use super::unforwarded::{Fate, Passed, Traits};
use super::{Changes, Counts, EvaluateError};
use crate::capture::Content;
use crate::clocks::Clocks;
use crate::key::{Extract, Keeps, KeyKind, Moonsniff, Packet, Signatures};
use crate::losses::{Losses, MOST};

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

/// The rows of lost packets in the order of the capture; their times are on the clock of the walk. Packets
/// that are not lost for all that the captures show have no row, and another place in `counts`.
pub(super) fn rows(
    choice: &KeyChoice,
    losses: Losses,
    common: &CommonTime,
    changes: &Changes,
    counts: &mut Counts,
) -> Result<Vec<LostPacket>, EvaluateError> {
    let losses = losses.sorted();
    let lost = losses.packets();
    // Of later ones nobody knows whether they are among the lost.
    let all = lost.len() < MOST;
    let known =
        |time| common.contains(time) && (all || lost.last().is_some_and(|last| time <= last.0));
    let lost: Vec<_> = lost.iter().copied().filter(|&(time, _)| common.contains(time)).collect();
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    let passed = Passed::new(changes.changes.iter().any(|change| change.what == "time to live"));
    let look = Look { choice, lost: &lost, known: &known, passed };
    match choice.key {
        KeyKind::Packet(packet) => look.read(packet, counts),
        KeyKind::Stream(stream) => look.read(stream, counts),
        KeyKind::Moonsniff => look.read(Moonsniff, counts),
        KeyKind::Signature => look.read(Signatures, counts),
        KeyKind::Field(field) | KeyKind::Fields([field, _]) => look.read(field, counts),
    }
}

/// A look at the capture before the device.
struct Look<'a> {
    choice: &'a KeyChoice,
    /// Times and keys of the packets to be found, in order.
    lost: &'a [(u64, u64)],
    /// Whether a packet of a time that is not among them is not lost.
    known: &'a dyn Fn(u64) -> bool,
    passed: Passed,
}

impl Look<'_> {
    fn read<X: Extract>(
        self,
        extract: X,
        counts: &mut Counts,
    ) -> Result<Vec<LostPacket>, EvaluateError> {
        const AT_ONCE: usize = 1 << 16;
        let Self { choice, lost, known, mut passed } = self;
        let shift_ns =
            choice.ingress_shift_ns + choice.clocks.as_ref().map_or(0, Clocks::ingress_shift_ns);
        let mut capture = choice.ingress.open()?;
        let mut rows: Vec<LostPacket> = Vec::with_capacity(lost.len());
        let mut traits: Vec<Traits> = Vec::new();
        // Packets that arrived, so far: those lost in a row have the same number.
        let (mut position, mut arrived) = (0, 0);
        while capture.read(AT_ONCE, |packet| {
            let Ok((key, shown)) = extract.extract(packet.content) else { return };
            let time = packet.time_ns.saturating_add(shift_ns);
            if lost.binary_search(&(time, key)).is_ok() {
                rows.push(LostPacket {
                    ingress_ns: time,
                    position,
                    length: length(packet.content),
                    burst: arrived,
                    flow: flow(packet.content),
                    key: X::name(key, shown).to_string(),
                });
                traits.push(Traits::of(packet.content));
            } else {
                arrived += 1;
                if known(time) {
                    passed.add(packet.content);
                }
            }
            position += 1;
        })? && (rows.len() < lost.len() || passed.matters(&traits))
        {}
        let fates = passed.judge(&traits, &choice.ingress);
        let of = |fate| fates.iter().filter(|&&one| one == fate).count() as u64;
        (counts.not_forwarded, counts.to_device) = (of(Fate::NotForwarded), of(Fate::ToDevice));
        counts.lost -= counts.not_forwarded + counts.to_device;
        let mut fates = fates.iter();
        rows.retain(|_| fates.next() == Some(&Fate::Lost));
        for burst in rows.chunk_by_mut(|one, next| one.burst == next.burst) {
            let packets = burst.len() as u64;
            burst.iter_mut().for_each(|row| row.burst = packets);
        }
        Ok(rows)
    }
}

fn length(content: Content<'_>) -> Option<u32> {
    match content {
        Content::Frame { wire_len, .. } | Content::Mark { wire_len, .. } => Some(wire_len),
        Content::Id(_) => None,
    }
}

fn flow(content: Content<'_>) -> String {
    // Nothing of the payload, so that it may be cut off.
    let headers = Packet { keeps: Keeps::Flow, most: 0 };
    headers.extract(content).map_or(String::new(), |(_, seen)| seen.flow())
}
