//! Intervals of one core that overlap, as stretches that do not.

use super::Owners;
use super::layout::Interval;
use super::nested::Level;
use super::timeline::Builder;

/// More intervals than this cover no nanosecond of a core, unless the trace is damaged.
const MOST_ACTIVE: usize = 64;

/// Gives each nanosecond to one of the intervals that cover it.
#[derive(Default)]
pub(super) struct Sweep {
    now: u64,
    /// Those that cover now, in the order in which they came.
    active: Vec<Interval>,
    timeline: Builder,
    /// Who has what tasks have while nobody has told the core of packets; none where it is theirs.
    untold: Option<u32>,
}

impl Sweep {
    pub(super) fn new(untold: Option<u32>) -> Self {
        Self { untold, ..Self::default() }
    }

    /// Takes intervals in the order of their starts; of those that begin together the longer one
    /// comes first, and what refines it comes last.
    pub(super) fn take(&mut self, intervals: &[Interval]) {
        for interval in intervals {
            if interval.start > self.now {
                self.go_to(interval.start);
            }
            self.begin(*interval);
        }
    }

    /// Takes a stretch that nothing else covers. Nothing taken so far goes beyond its start.
    #[inline]
    pub(super) fn lay(&mut self, start: u64, end: u64, owner: u32) {
        if start > self.now {
            self.go_to(start);
        }
        debug_assert!(self.active.is_empty() && start == self.now, "stretches follow each other");
        self.timeline.push(start, owner);
        self.now = end;
    }

    /// The stretches of all intervals.
    pub(super) fn finish(mut self) -> Builder {
        self.go_to(u64::MAX);
        self.timeline
    }

    /// Settles whose the time is up to a moment.
    #[inline]
    fn go_to(&mut self, time: u64) {
        if self.active.is_empty() {
            self.timeline.push(self.now, Owners::NOBODY);
            self.now = time;
        } else {
            self.settle(time);
        }
    }

    fn settle(&mut self, time: u64) {
        loop {
            let (owner, until) = winner(&self.active, self.untold);
            self.timeline.push(self.now, owner);
            if until > time {
                self.now = time;
                return;
            }
            self.now = until;
            self.active.retain(|interval| interval.end > until);
            if until == time {
                return;
            }
        }
    }

    fn begin(&mut self, mut next: Interval) {
        if next.level == Level::Refinement {
            let contexts = self.active.iter().filter(|one| matches!(one.level, Level::Context(_)));
            let Some(base) = contexts.max_by_key(|one| (one.level, one.start)) else { return };
            // It stands on its context, and not longer than that.
            next.end = next.end.min(base.end);
            next.level = base.level;
        }
        if self.active.len() >= MOST_ACTIVE {
            self.active.remove(0);
        }
        self.active.push(next);
    }
}

/// Who has the core, and until when at most.
fn winner(active: &[Interval], untold: Option<u32>) -> (u32, u64) {
    let untold_of = |top: &Interval| untold.filter(|_| top.level == Level::Context(0) && !top.idle);
    if let [only] = active
        && let Level::Context(_) = only.level
    {
        return (untold_of(only).unwrap_or(only.owner), only.end);
    }
    let mut until = u64::MAX;
    let (mut lost, mut steal, mut throttled) = (None, None, None);
    // The highest context; of several at one level the one that began later, or is shorter.
    let mut context: Option<&Interval> = None;
    let mut overlay: Option<&Interval> = None;
    let mut told = false;
    let above = |one: &Interval, other: Option<&Interval>| {
        other.is_none_or(|other| (one.level, one.start) >= (other.level, other.start))
    };
    for one in active {
        until = until.min(one.end);
        // An interrupt that another core sent may be what tells of packets.
        told |= matches!(one.level, Level::Told | Level::Overlay(0));
        match one.level {
            Level::Context(_) if above(one, context) => context = Some(one),
            Level::Overlay(_) if above(one, overlay) => overlay = Some(one),
            Level::Steal => steal = steal.or(Some(one.owner)),
            Level::Throttled => throttled = throttled.or(Some(one.owner)),
            Level::Lost => lost = lost.or(Some(one.owner)),
            _ => {}
        }
    }
    let throttled = throttled.filter(|_| context.is_some_and(|top| top.level == Level::Context(0)));
    let owner = match (lost.or(throttled), context) {
        (Some(owner), _) => owner,
        // Only a core that does something can be stolen from; what it was is not known.
        (None, None) => steal.unwrap_or(Owners::NOBODY),
        (None, Some(context)) if context.idle => overlay.unwrap_or(context).owner,
        (None, Some(context)) => {
            let untold = untold_of(context).filter(|_| !told);
            steal.or(untold).unwrap_or(context.owner)
        }
    };
    (owner, until)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Cores, Owner, STEAL, Serving, UNSEEN, UNTOLD};
    use crate::stamps::{Clock, Header};
    use crate::trace::{ACCUMULATED, MAGIC, Record, Trace, kind};
    use proptest::prelude::*;
    use std::io::Write;

    /// From, until, and whose it is.
    type Named = (u64, u64, Owner);

    const ENDED: u64 = 400;
    /// A packet leaves every so many nanoseconds.
    const LEAVE_NS: usize = 5;

    /// Any record of two cores.
    pub(in super::super) fn record() -> impl Strategy<Value = Record> {
        let lengths = prop_oneof![9 => 0..40u32, 1 => 40..300u32, 1 => Just(u32::MAX)];
        let kinds = prop_oneof![1..=19u8, Just(254u8)];
        let steal = prop_oneof![4 => Just(0u32), 1 => 1..60u32];
        let rest =
            (0..3u32, steal, 0..7u64, any::<bool>(), prop_oneof![3 => Just(0), 1 => Just(1)]);
        (0..250u64, lengths, kinds, 0..5u8, rest).prop_map(
            |(start_ns, dur_ns, kind, short, (id, steal_ns, number, late, cpu))| Record {
                start_ns: start_ns + 50 * u64::from(late),
                dur_ns,
                kind,
                flags: u8::from(short == 0),
                aux: if short == 0 { 60 << 32 | number } else { number << 40 },
                id,
                steal_ns,
                cpu,
            },
        )
    }

    /// The stretches of records in a file, whose blocks and parts are so long.
    fn lay_out(
        records: &[Record],
        wanted: &[u16],
        block: u64,
        part: usize,
    ) -> (usize, Vec<Vec<Named>>) {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&MAGIC).expect("room");
        records.iter().for_each(|record| file.write_all(&record.encode()).expect("room"));
        let mut stamps = tempfile::NamedTempFile::new().expect("a file");
        let header = Header { clock: Clock::Monotonic, counts: None, link: "egress".into() };
        stamps.write_all(&header.encode()).expect("room");
        for time in (0..ENDED).step_by(LEAVE_NS) {
            let record = [time.to_le_bytes(), [0; 8]].concat();
            stamps.write_all(&record).expect("room");
        }
        let trace = Trace::open_in(file.path(), wanted, block, part).expect("a trace");
        let leaving = [stamps.path().to_owned()];
        let serving = Serving { vector: 1, softirq: wanted, threads: &[], leaving: &leaving };
        let cores = Cores::lay_out(&trace, ENDED, Some(serving)).expect("a file that stays");
        let owners = cores.owners.list();
        let stretches = cores.timelines.values().map(|timeline| {
            let all = timeline.between(0, 1 << 40);
            all.map(|(from, until, owner)| (from, until, owners[owner as usize])).collect()
        });
        (trace.parts().len(), stretches.collect())
    }

    /// Tasks that follow each other or not, some with an interrupt in them; now and then something ends
    /// that began long before, and steal, a flush or a function call come in between.
    pub(in super::super) fn followed() -> impl Strategy<Value = Vec<Record>> {
        let kinds = prop_oneof![
            Just(kind::WAKEUP),
            Just(kind::WORK),
            Just(kind::VECTOR),
            Just(kind::TLB_FLUSH),
            Just(kind::IPI_FUNCTION),
            Just(kind::TASK),
            Just(kind::LOST),
        ];
        let other = (0..40u64, 0..12u64, kinds, any::<bool>());
        let rare = |most: u32| prop_oneof![3 => Just(0u32), 1 => 1..most];
        let one = (rare(4), 1..8u64, rare(7), proptest::option::weighted(0.3, other), rare(9));
        proptest::collection::vec(one, 8..40).prop_map(|ones| {
            let mut at = 10;
            let mut found = Vec::new();
            for (place, (gap, dur, inner, other, steal_ns)) in ones.into_iter().enumerate() {
                let start_ns = at + u64::from(gap);
                at = start_ns + dur;
                let record = |start_ns: u64, end: u64, kind: u8| Record {
                    start_ns,
                    dur_ns: (end - start_ns) as u32,
                    kind,
                    id: place as u32 % 3,
                    ..Record::default()
                };
                if inner > 0 {
                    let from = start_ns + dur.min(u64::from(inner)) / 2;
                    let kind = if inner % 2 == 0 { kind::VECTOR } else { kind::SOFTIRQ };
                    found.push(record(from, at.min(from + u64::from(inner)), kind));
                }
                found.push(Record { steal_ns, ..record(start_ns, at, kind::TASK) });
                if let Some((back, more, kind, accumulated)) = other {
                    let end = at + more;
                    let mut other = record(end.saturating_sub(back).max(1), end, kind);
                    if accumulated && kind == kind::VECTOR {
                        other.flags = ACCUMULATED;
                        other.aux = u64::from(other.dur_ns) << 32 | 3;
                        other.dur_ns /= 2;
                    }
                    found.push(other);
                }
            }
            found
        })
    }

    proptest! {
        #[test]
        fn parts_of_a_core_give_what_the_whole_gives(
            records in followed(),
            block in 2..9u64,
            part in 1..3usize,
        ) {
            let (_, expected) = lay_out(&records, &[0], 1 << 10, 1);
            prop_assert_eq!(lay_out(&records, &[0], block, part).1, expected);
        }

        /// Records in any order, so that some reach back behind several blocks.
        #[test]
        fn blocks_and_parts_give_what_the_whole_gives(
            mut records in proptest::collection::vec(record(), 1..60),
            block in 1..12u64,
            part in 1..4usize,
            sorted in any::<bool>(),
        ) {
            if sorted {
                records.sort_by_key(Record::end_ns);
            }
            let (_, expected) = lay_out(&records, &[0, 1], 1 << 10, 1);
            prop_assert_eq!(lay_out(&records, &[0, 1], block, part).1, expected);
        }
    }

    /// The stretches of a core that softirqs serve, by the kinds of their owners.
    fn kinds(records: &[(u8, u64, u32, u32)]) -> Vec<(u64, u64, u8)> {
        let records: Vec<_> = records
            .iter()
            .map(|&(kind, start_ns, dur_ns, steal_ns)| Record {
                kind,
                start_ns,
                dur_ns,
                steal_ns,
                ..Record::default()
            })
            .collect();
        let (_, stretches) = lay_out(&records, &[0], 1 << 10, 1);
        let kinds = stretches[0].iter().map(|&(from, until, owner)| (from, until, owner.kind));
        kinds.filter(|stretch| stretch.2 != UNSEEN).collect()
    }

    #[test]
    fn a_core_is_told_of_packets_while_an_interrupt_is_under_way() {
        let found = kinds(&[(kind::IPI_DELAY, 20, 20, 0), (kind::TASK, 10, 90, 0)]);
        assert_eq!(found, [(10, 20, UNTOLD), (20, 40, kind::TASK), (40, 100, UNTOLD)]);
    }

    #[test]
    fn what_was_stolen_lies_behind_the_last_record_that_is_there() {
        let lost = [(kind::TASK, 10, 10, 0), (kind::LOST, 50, 10, 0), (kind::TASK, 90, 10, 60)];
        assert_eq!(kinds(&lost), [(10, 20, UNTOLD), (30, 50, STEAL)]);
    }

    #[test]
    fn a_trace_of_tasks_that_follow_each_other_is_cut() {
        let task = |at: u64| Record {
            start_ns: 10 * at,
            dur_ns: if at.is_multiple_of(3) { 9 } else { 10 },
            kind: kind::TASK,
            id: at as u32 % 4 / 2,
            cpu: at as u16 % 2,
            ..Record::default()
        };
        let records: Vec<_> = (1..1000).map(task).collect();
        let (parts, stretches) = lay_out(&records, &[0, 1], 10, 2);
        assert_eq!(parts, 50);
        assert_eq!(stretches, lay_out(&records, &[0, 1], 1 << 10, 1).1);
    }
}
