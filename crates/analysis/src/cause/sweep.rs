//! Intervals of one core that overlap, as stretches that do not.

use super::Owners;
use super::layout::{Interval, Level};
use super::timeline::{Builder, Timeline};

/// More intervals than this cover no nanosecond of a core, unless the trace is damaged.
const MOST_ACTIVE: usize = 64;

/// Gives each nanosecond to one of the intervals that cover it.
#[derive(Default)]
pub(super) struct Sweep {
    now: u64,
    /// Those that cover now, in the order in which they came.
    active: Vec<Interval>,
    timeline: Builder,
}

impl Sweep {
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

    /// The stretches of all intervals.
    pub(super) fn finish(mut self) -> Timeline {
        self.go_to(u64::MAX);
        self.timeline.finish()
    }

    /// Settles whose the time is up to a moment.
    fn go_to(&mut self, time: u64) {
        loop {
            let (owner, until) = winner(&self.active);
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
fn winner(active: &[Interval]) -> (u32, u64) {
    if let [only] = active
        && let Level::Context(_) = only.level
    {
        return (only.owner, only.end);
    }
    let mut until = u64::MAX;
    let (mut lost, mut steal) = (None, None);
    // The highest context; of several at one level the one that began later, or is shorter.
    let mut context: Option<&Interval> = None;
    let mut overlay: Option<&Interval> = None;
    let above = |one: &Interval, other: Option<&Interval>| {
        other.is_none_or(|other| (one.level, one.start) >= (other.level, other.start))
    };
    for one in active {
        until = until.min(one.end);
        match one.level {
            Level::Context(_) if above(one, context) => context = Some(one),
            Level::Overlay(_) if above(one, overlay) => overlay = Some(one),
            Level::Steal => steal = steal.or(Some(one.owner)),
            Level::Lost => lost = lost.or(Some(one.owner)),
            _ => {}
        }
    }
    let owner = match (lost, context) {
        (Some(lost), _) => lost,
        // Only a core that does something can be stolen from; what it was is not known.
        (None, None) => steal.unwrap_or(Owners::NOBODY),
        (None, Some(context)) if context.idle => overlay.unwrap_or(context).owner,
        (None, Some(context)) => steal.unwrap_or(context.owner),
    };
    (owner, until)
}

#[cfg(test)]
mod tests {
    use super::super::layout::Arranger;
    use super::*;
    use crate::trace::{Ahead, Record};
    use proptest::prelude::*;

    const ENDED: u64 = 400;

    fn record() -> impl Strategy<Value = Record> {
        let lengths = prop_oneof![9 => 0..40u32, 1 => 40..300u32, 1 => Just(u32::MAX)];
        let kinds = prop_oneof![1..=19u8, Just(254u8)];
        let rest = (0..3u32, prop_oneof![4 => Just(0u32), 1 => 1..60u32], 0..7u64, any::<bool>());
        (0..250u64, lengths, kinds, 0..5u8, rest).prop_map(
            |(start_ns, dur_ns, kind, short, (id, steal_ns, number, late))| Record {
                start_ns: start_ns + 50 * u64::from(late),
                dur_ns,
                kind,
                flags: u8::from(short == 0),
                aux: if short == 0 { 60 << 32 | number } else { number << 40 },
                id,
                steal_ns,
                cpu: 0,
            },
        )
    }

    fn lay_out(blocks: &[&[Record]]) -> Vec<(u64, u64, u32)> {
        let mut arranger = Arranger::new(ENDED, None);
        let mut sweep = Sweep::default();
        for (place, records) in blocks.iter().enumerate() {
            let mut ahead = Ahead::NONE;
            blocks[place + 1..].iter().copied().flatten().for_each(|record| ahead.add(record));
            let mut ready = Vec::new();
            arranger.take(records, &ahead, &mut ready).expect("no file is read");
            assert!(ready.is_sorted_by_key(|interval| interval.start));
            sweep.take(&ready);
        }
        let timeline = sweep.finish();
        timeline.between(0, 1 << 40).collect()
    }

    proptest! {
        /// Records in any order, so that some reach back behind several blocks.
        #[test]
        fn blocks_give_what_the_whole_gives(
            mut records in proptest::collection::vec(record(), 1..60),
            size in 1..12usize,
            sorted in any::<bool>(),
        ) {
            if sorted {
                records.sort_by_key(Record::end_ns);
            }
            let blocks: Vec<_> = records.chunks(size).collect();
            prop_assert_eq!(lay_out(&blocks), lay_out(&[&records]));
        }
    }
}
