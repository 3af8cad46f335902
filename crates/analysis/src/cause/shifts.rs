//! How much of many stretches of time some rows cover: one walk along a core for all of them.
//!
//! The stretches come sorted by their beginning. While one of them is open, the walk adds up the time
//! of each row, and a stretch has what was added from its beginning to its end. Between them the walk
//! jumps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::timeline::{Starts, Timeline};

/// A stretch of time of which one wants to know the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub from_ns: u64,
    pub until_ns: u64,
    /// What it is for.
    pub slot: usize,
    /// It ends with a packet that left. Where that is in a time without service, the packet cannot
    /// have been waiting for its end, so that none of this time counts.
    pub cut: bool,
}

/// What an owner's time is to a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The core serves.
    Serving,
    /// Nobody knows what the core does.
    Nothing,
    /// The core does something else, of a row that nobody asked for.
    Other,
    /// The same, of a row that has this place among those that were asked for.
    Asked(usize),
}

/// What does not change along a walk.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub timeline: &'a Timeline,
    /// The class of each owner.
    pub classes: &'a [Class],
    /// How many rows were asked for.
    pub rows: usize,
    /// Only times without service count that are longer, in nanoseconds.
    pub longer_than: u64,
}

/// Where a walk is, and what it has added up.
struct State<'a> {
    at: u64,
    /// What the core does from there on; none where no record has begun yet.
    class: Option<Class>,
    coming: Starts<'a>,
    /// The time of each row that counts.
    sums: Vec<u64>,
    /// What of it is of the time without service in which the walk is, and whose that is.
    since: Vec<u64>,
    met: Vec<usize>,
    /// Whether this time is long enough to count; none while the core serves.
    counts: Option<bool>,
}

impl Walk<'_> {
    /// How long each row has each of the parts, which are sorted: part by part, the rows of one
    /// beside each other.
    pub(super) fn covered(&self, parts: &[Part]) -> Vec<u64> {
        let rows = self.rows;
        // Of an open part, what had been added up when it began.
        let mut found = vec![0; parts.len() * rows];
        let mut open: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        // The next part that begins, and when one begins or ends.
        let mut next = 0;
        let mut event = parts.first().map_or(u64::MAX, |part| part.from_ns);
        let mut state = self.begin();
        loop {
            if open.is_empty() {
                let Some(part) = parts.get(next) else { return found };
                // From there on it is known whether a time without service is long enough.
                let from = part.from_ns.saturating_sub(self.longer_than).saturating_sub(1);
                if from > state.at {
                    self.jump(&mut state, from);
                }
            }
            let (end, then) = match state.coming.next() {
                Some((start, owner)) => (start, Some(self.classes[owner as usize])),
                None => (u64::MAX, None),
            };
            self.enter(&mut state, end, then);
            let asked = match state.class {
                Some(Class::Asked(row)) if state.counts == Some(true) => Some(row),
                _ => None,
            };
            while event < end {
                let so_far = |row: usize| {
                    state.sums[row] + if asked == Some(row) { event - state.at } else { 0 }
                };
                if let Some(part) = parts.get(next).filter(|part| part.from_ns == event) {
                    (0..rows).for_each(|row| found[next * rows + row] = so_far(row));
                    open.push(Reverse((part.until_ns, next)));
                    next += 1;
                } else if let Some(Reverse((_, place))) = open.pop() {
                    let unserved = matches!(state.class, Some(Class::Other | Class::Asked(_)));
                    for (row, found) in found[place * rows..][..rows].iter_mut().enumerate() {
                        let until = if parts[place].cut && unserved {
                            state.sums[row] - state.since[row]
                        } else {
                            so_far(row)
                        };
                        *found = until.saturating_sub(*found);
                    }
                }
                let begins = parts.get(next).map_or(u64::MAX, |part| part.from_ns);
                event = open.peek().map_or(u64::MAX, |first| first.0.0).min(begins);
            }
            if let Some(row) = asked {
                let ns = end - state.at;
                if state.since[row] == 0 {
                    state.met.push(row);
                }
                state.sums[row] += ns;
                state.since[row] += ns;
            }
            (state.at, state.class) = (end, then);
        }
    }

    fn begin(&self) -> State<'_> {
        let mut state = State {
            at: 0,
            class: None,
            coming: self.timeline.after(0),
            sums: vec![0; self.rows],
            since: vec![0; self.rows],
            met: Vec::new(),
            counts: None,
        };
        self.jump(&mut state, 0);
        state
    }

    fn jump<'a>(&'a self, state: &mut State<'a>, at: u64) {
        state.met.drain(..).for_each(|row| state.since[row] = 0);
        state.at = at;
        state.coming = self.timeline.after(at);
        state.class = state.coming.owner_before().map(|owner| self.classes[owner as usize]);
        state.counts = None;
    }

    /// Looks at what the core does until `end`, and `then`.
    fn enter(&self, state: &mut State<'_>, end: u64, then: Option<Class>) {
        match state.class {
            None | Some(Class::Serving) => state.counts = None,
            Some(_) if state.counts.is_none() => {
                state.counts = Some(self.is_long(state.at, end, then, state.coming.clone()));
            }
            Some(_) => {}
        }
        if matches!(state.class, None | Some(Class::Serving | Class::Nothing)) {
            state.met.drain(..).for_each(|row| state.since[row] = 0);
        }
    }

    /// Whether a time without service that begins at `at` is long enough to count.
    fn is_long(
        &self,
        at: u64,
        mut end: u64,
        mut then: Option<Class>,
        mut coming: Starts<'_>,
    ) -> bool {
        while end - at <= self.longer_than {
            if matches!(then, None | Some(Class::Serving)) {
                return false;
            }
            let Some((start, owner)) = coming.next() else { return false };
            (end, then) = (start, Some(self.classes[owner as usize]));
        }
        end < u64::MAX // the last one has no end, and is nobody's
    }
}

#[cfg(test)]
mod tests {
    use super::super::Owners;
    use super::super::timeline::Builder;
    use super::*;
    use proptest::prelude::*;

    /// What a part has of a row, nanosecond by nanosecond.
    fn slowly(whose: &[Option<Class>], longer_than: u64, part: &Part, row: usize) -> u64 {
        let at = |time: u64| whose.get(time as usize).copied().flatten();
        let unserved = |time: u64| matches!(at(time), Some(Class::Other | Class::Asked(_)));
        let away = |time: &u64| !matches!(at(*time), None | Some(Class::Serving));
        let mut until = part.until_ns;
        if part.cut && unserved(until) {
            while until > 0 && unserved(until - 1) {
                until -= 1;
            }
        }
        let counts = |time: &u64| {
            let before = (0..*time).rev().take_while(away).count() as u64;
            let behind = (*time..whose.len() as u64).take_while(away).count() as u64;
            at(*time) == Some(Class::Asked(row)) && before + behind > longer_than
        };
        (part.from_ns..until.max(part.from_ns)).filter(counts).count() as u64
    }

    proptest! {
        #[test]
        fn a_walk_finds_what_each_nanosecond_says(
            stretches in proptest::collection::vec((1..12u64, 1..6u32), 1..25),
            parts in proptest::collection::vec((0..100u64, 1..60u64, any::<bool>()), 0..12),
            longer_than in prop_oneof![Just(0u64), 1..25u64],
        ) {
            let classes = [Class::Nothing, Class::Serving, Class::Nothing, Class::Other,
                           Class::Asked(0), Class::Asked(1)];
            let mut builder = Builder::default();
            let mut whose = vec![None; 5];
            for (length, owner) in stretches {
                builder.push(whose.len() as u64, owner);
                whose.extend(vec![Some(classes[owner as usize]); length as usize]);
            }
            builder.push(whose.len() as u64, Owners::NOBODY);
            let timeline = builder.finish();
            let mut parts: Vec<Part> = parts
                .into_iter()
                .enumerate()
                .map(|(slot, (from_ns, length, cut))| {
                    Part { from_ns, until_ns: from_ns + length, slot, cut }
                })
                .collect();
            parts.sort_unstable();
            let walk = Walk { timeline: &timeline, classes: &classes, rows: 2, longer_than };
            let found = walk.covered(&parts);
            for (part, found) in parts.iter().zip(found.chunks_exact(2)) {
                let expected: Vec<_> =
                    (0..2).map(|row| slowly(&whose, longer_than, part, row)).collect();
                prop_assert_eq!(found, &expected[..]);
            }
        }
    }
}
