//! Late packets and the timelines of their cores: parts, stalls and queues.

use std::collections::HashMap;
use std::ops::Range;

use super::timeline::{Stretch, Timeline};
use super::{Cores, NOTHING, Row, SERVING};

/// A packet's stay in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Stamp before the device in nanoseconds.
    pub ingress_ns: u64,
    /// Stamp after it.
    pub egress_ns: u64,
    /// The core that had it last, if that is known.
    pub cpu: Option<u16>,
    /// Packets that left the device during the stay.
    pub left: u64,
}

impl Stay {
    fn latency_ns(&self) -> u64 {
        self.egress_ns.saturating_sub(self.ingress_ns)
    }
}

/// What usual packets see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usual {
    /// The mean time with each row, in whole nanoseconds.
    pub ns: Vec<u64>,
    /// The mean number of packets that leave during a stay.
    pub left: u64,
}

/// What became of a late packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Its core did not serve while it waited.
    Direct,
    /// Its core served those that a stall had held up.
    Behind,
    /// Its core served others, and no stall had held them up.
    Queued,
    /// Its core served, and took long.
    Served,
    /// Nobody can say.
    Unexplained,
}

/// A stretch in which a core did not serve, and late packets waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The core.
    pub cpu: u16,
    /// When the first of its packets began to wait, or the core ceased to serve.
    pub start_ns: u64,
    /// When the core served again, or the last of its packets left.
    pub end_ns: u64,
    /// What took most of it, of the cause that did.
    pub row: Row,
    /// The place of the direct packet with the largest latency.
    pub worst: usize,
}

/// What is known of late packets. Packets are known by their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// What became of each packet.
    pub states: Vec<State>,
    /// The stall of each packet, if it has one.
    pub stalls_of: Vec<Option<usize>>,
    /// Where the parts of each packet begin in `parts`, and where the last ones end.
    pub offsets: Vec<usize>,
    /// Rows and nanoseconds, the rows of a packet ascending.
    pub parts: Vec<(Row, u64)>,
    /// Stalls in the order in which their first packet left.
    pub stalls: Vec<Stall>,
}

/// Timelines whose owners are sorted into rows.
pub struct Join<'a> {
    /// What the cores did.
    pub cores: &'a Cores,
    /// The row of each owner by its number.
    pub rows: &'a [Row],
}

/// The late packets of a core that made one queue, and the core's stalls.
#[derive(Default)]
struct Queue {
    /// When the last of them left.
    end_ns: u64,
    /// Their longest stall.
    stall: Option<usize>,
    /// Each stall by when the core served again.
    stalls: HashMap<u64, usize>,
    /// The time without service that was looked at last, from where it was looked at.
    unserved: Range<u64>,
}

impl Join<'_> {
    /// What usual packets see.
    pub fn usual(&self, packets: &[Stay]) -> Usual {
        let mut sums: Vec<u64> = Vec::new();
        let mut left = 0;
        let mut known = 0;
        for packet in packets {
            let Some(overlaps) = self.overlaps(packet) else { continue };
            for (row, ns) in overlaps {
                let row = row as usize;
                sums.resize(sums.len().max(row + 1), 0);
                sums[row] += ns;
            }
            left += packet.left;
            known += 1;
        }
        let mean = |sum: u64| sum.checked_div(known).unwrap_or(0);
        Usual { ns: sums.into_iter().map(mean).collect(), left: mean(left) }
    }

    /// Joins late packets, in the order in which they left, with what their cores did. `causes` has
    /// the number of each row's cause.
    pub fn join(&self, packets: &[Stay], median_ns: u64, usual: &Usual, causes: &[u32]) -> Joined {
        let mut joined = Joined { offsets: vec![0], ..Joined::default() };
        let mut queues: HashMap<u16, Queue> = HashMap::new();
        for (place, packet) in packets.iter().enumerate() {
            let excess = packet.latency_ns().saturating_sub(median_ns);
            let parts = self.overlaps(packet).map_or_else(Vec::new, |overlaps| {
                let mut parts = over(&overlaps, usual);
                cut(&mut parts, excess);
                parts
            });
            let served = parts.iter().find(|part| part.0 == SERVING).map_or(0, |part| part.1);
            let total: u64 = parts.iter().map(|part| part.1).sum();
            let unserved = total - served;
            joined.parts.extend(parts);
            joined.offsets.push(joined.parts.len());
            let (state, stall) = match packet.cpu {
                Some(cpu) if 2 * total >= excess && total > 0 => {
                    let queue = queues.entry(cpu).or_default();
                    if packet.ingress_ns >= queue.end_ns {
                        queue.stall = None;
                    }
                    queue.end_ns = queue.end_ns.max(packet.egress_ns);
                    if unserved >= served {
                        let stall = self.stall(packet, place, packets, &mut joined, queue);
                        queue.stall = longer(&joined.stalls, queue.stall, stall);
                        (State::Direct, stall)
                    } else if queue.stall.is_some() {
                        (State::Behind, queue.stall)
                    } else if packet.left >= 2 * (usual.left + 1) {
                        (State::Queued, None)
                    } else {
                        (State::Served, None)
                    }
                }
                _ => (State::Unexplained, None),
            };
            joined.states.push(state);
            joined.stalls_of.push(stall);
        }
        for stall in &mut joined.stalls {
            if let Some(timeline) = self.cores.timelines.get(&stall.cpu) {
                let parts = self.sum(timeline.between(stall.start_ns, stall.end_ns));
                stall.row = largest(&parts, causes);
            }
        }
        joined
    }

    /// The time of a stay by rows, ascending; none if the core is not known.
    fn overlaps(&self, packet: &Stay) -> Option<Vec<(Row, u64)>> {
        let timeline = self.cores.timelines.get(&packet.cpu?)?;
        Some(self.sum(timeline.between(packet.ingress_ns, packet.egress_ns)))
    }

    /// The time of stretches by rows, ascending.
    fn sum(&self, stretches: impl Iterator<Item = Stretch>) -> Vec<(Row, u64)> {
        let mut sums: Vec<(Row, u64)> = Vec::new();
        for (from, until, owner) in stretches {
            let row = self.rows[owner as usize];
            match sums.binary_search_by_key(&row, |sum| sum.0) {
                Ok(at) => sums[at].1 += until - from,
                Err(at) => sums.insert(at, (row, until - from)),
            }
        }
        sums
    }

    /// The stall that held a packet up for longest.
    fn stall(
        &self,
        packet: &Stay,
        place: usize,
        packets: &[Stay],
        joined: &mut Joined,
        queue: &mut Queue,
    ) -> Option<usize> {
        let cpu = packet.cpu?;
        let timeline = self.cores.timelines.get(&cpu)?;
        let (start_ns, end_ns) = self.longest_unserved(timeline, packet)?;
        // A packet may leave before the core is seen to serve.
        if !queue.unserved.contains(&end_ns) {
            let mut later = timeline.between(end_ns, u64::MAX);
            let serves = later.find(|stretch| self.rows[stretch.2 as usize] == SERVING);
            queue.unserved = end_ns..serves.map_or(u64::MAX, |stretch| stretch.0);
        }
        let stalls = &mut joined.stalls;
        let stall = *queue.stalls.entry(queue.unserved.end).or_insert_with(|| {
            stalls.push(Stall { cpu, start_ns, end_ns, row: NOTHING, worst: place });
            stalls.len() - 1
        });
        let found = &mut stalls[stall];
        found.start_ns = found.start_ns.min(start_ns);
        found.end_ns = found.end_ns.max(end_ns);
        if packet.latency_ns() > packets[found.worst].latency_ns() {
            found.worst = place;
        }
        Some(stall)
    }

    /// The longest time in a stay without a break in which the core did not serve.
    fn longest_unserved(&self, timeline: &Timeline, packet: &Stay) -> Option<(u64, u64)> {
        let mut longest: Option<(u64, u64)> = None;
        let mut current: Option<(u64, u64)> = None;
        for (from, until, owner) in timeline.between(packet.ingress_ns, packet.egress_ns) {
            if self.rows[owner as usize] == SERVING {
                current = None;
                continue;
            }
            let now = (current.map_or(from, |begun| begun.0), until);
            current = Some(now);
            if longest.is_none_or(|known| now.1 - now.0 > known.1 - known.0) {
                longest = current;
            }
        }
        longest
    }
}

/// The largest row of the cause that has most of a stall's parts.
fn largest(parts: &[(Row, u64)], causes: &[u32]) -> Row {
    let parts = || parts.iter().filter(|part| part.0 != SERVING);
    let cause = |row: Row| causes[row as usize];
    let whole = |row: Row| -> u64 {
        parts().filter(|part| cause(part.0) == cause(row)).map(|part| part.1).sum()
    };
    parts().max_by_key(|part| (whole(part.0), part.1)).map_or(NOTHING, |part| part.0)
}

/// The longer of two stalls, the first if they are alike.
fn longer(stalls: &[Stall], first: Option<usize>, second: Option<usize>) -> Option<usize> {
    let length = |stall: usize| stalls[stall].end_ns - stalls[stall].start_ns;
    match (first, second) {
        (Some(one), Some(other)) if length(one) >= length(other) => Some(one),
        (first, second) => second.or(first),
    }
}

/// What of each row is more than usual. What nobody explains is no part.
fn over(overlaps: &[(Row, u64)], usual: &Usual) -> Vec<(Row, u64)> {
    let more = overlaps.iter().map(|&(row, ns)| {
        (row, ns.saturating_sub(usual.ns.get(row as usize).copied().unwrap_or(0)))
    });
    more.filter(|&(row, ns)| row != NOTHING && ns > 0).collect()
}

/// Takes what is more than `most` from the smallest parts.
fn cut(parts: &mut Vec<(Row, u64)>, most: u64) {
    let mut surplus = parts.iter().map(|part| part.1).sum::<u64>().saturating_sub(most);
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&at| parts[at].1);
    for at in order {
        let taken = surplus.min(parts[at].1);
        parts[at].1 -= taken;
        surplus -= taken;
    }
    parts.retain(|part| part.1 > 0);
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Builder;
    use super::super::{Owner, Owners};
    use super::*;
    use crate::trace::kind;
    use std::collections::BTreeMap;

    #[test]
    fn at_each_limit_a_late_packet_has_the_state_that_is_stated() {
        let (mut owners, mut builder) = (Owners::default(), Builder::default());
        let [away, server] =
            [1, 2].map(|id| owners.number(Owner { kind: kind::TASK, id, more: 0 }));
        for (start, owner) in [(0, away), (50, server), (300, Owners::NOBODY)] {
            builder.push(start, owner);
        }
        let cores = Cores { timelines: BTreeMap::from([(0, builder.finish())]), owners };
        let join = Join { cores: &cores, rows: &[NOTHING, 2, SERVING] };
        let stay = |ingress_ns, egress_ns, left| Stay { ingress_ns, egress_ns, cpu: Some(0), left };
        // As much away as served; behind it; in as the last one left; while twice the usual left.
        let stays = [stay(0, 100, 0), stay(99, 110, 0), stay(110, 200, 1), stay(200, 300, 2)];
        let states = join.join(&stays, 0, &Usual::default(), &[0, 1, 2]).states;
        assert_eq!(states, [State::Direct, State::Behind, State::Served, State::Queued]);
        // Half of what it took more is known.
        let half = [stay(200, 400, 0)];
        assert_eq!(join.join(&half, 0, &Usual::default(), &[0, 1, 2]).states, [State::Served]);
    }
}
