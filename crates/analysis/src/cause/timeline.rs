//! What one core did: a sequence of stretches without overlap, each with one owner.

use std::cmp::Reverse;

use super::Owners;
use super::layout::{Interval, Level};
use crate::trace::kind;

/// More intervals than this cover no nanosecond of a core, unless the trace is damaged.
const MOST_ACTIVE: usize = 64;

/// The stretches of a core, in the order of time. Each ends where the next one begins; the last one
/// is nobody's and has no end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    starts: Vec<u64>,
    owners: Vec<u32>,
}

/// A part of a stretch: from, until, and whose it is.
pub type Stretch = (u64, u64, u32);

impl Timeline {
    /// Whose the time is from a moment on.
    fn push(&mut self, start: u64, owner: u32) {
        if self.owners.last().copied().unwrap_or(Owners::NOBODY) != owner {
            self.starts.push(start);
            self.owners.push(owner);
        }
    }

    /// The stretches between two times, cut there.
    pub fn between(&self, from: u64, until: u64) -> impl Iterator<Item = Stretch> + '_ {
        let mut place = self.starts.partition_point(|&start| start <= from);
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= until {
                return None;
            }
            let end = self.starts.get(place).map_or(until, |&start| start.min(until));
            let owner = place.checked_sub(1).map_or(Owners::NOBODY, |before| self.owners[before]);
            let stretch = (at, end, owner);
            (at, place) = (end, place + 1);
            Some(stretch)
        })
    }

    /// All stretches but the endless one.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch> + '_ {
        let ends = self.starts.iter().skip(1).copied();
        let ended = self.starts.iter().zip(ends).zip(&self.owners);
        ended.map(|((&start, end), &owner)| (start, end, owner))
    }
}

/// Gives each nanosecond to one of the intervals that cover it.
pub(super) fn sweep(mut intervals: Vec<Interval>, owners: &Owners) -> Timeline {
    // Of those that begin together the longer one comes first, and what refines it comes last.
    intervals.sort_by_key(|one| (one.start, one.level == Level::Refinement, Reverse(one.end)));
    let idle = |owner: u32| owners.list()[owner as usize].kind == kind::IDLE;
    let mut timeline = Timeline::default();
    let mut active: Vec<Interval> = Vec::new();
    let mut coming = intervals.into_iter().peekable();
    let mut now = coming.peek().map_or(0, |first| first.start);
    loop {
        while let Some(mut next) = coming.next_if(|next| next.start <= now) {
            if next.level == Level::Refinement {
                let Some(base) = top(&active) else { continue };
                // It stands on its context, and not longer than that.
                next.end = next.end.min(base.end);
                next.level = base.level;
            }
            if active.len() >= MOST_ACTIVE {
                active.remove(0);
            }
            active.push(next);
        }
        timeline.push(now, winner(&active, idle));
        let ends = active.iter().map(|interval| interval.end);
        let Some(then) = ends.chain(coming.peek().map(|next| next.start)).min() else {
            return timeline;
        };
        now = then;
        active.retain(|interval| interval.end > now);
    }
}

/// The highest context; of several at one level the one that began later, or is shorter.
fn top(active: &[Interval]) -> Option<&Interval> {
    let contexts = active.iter().filter(|interval| matches!(interval.level, Level::Context(_)));
    contexts.max_by_key(|interval| (interval.level, interval.start))
}

/// Who has the core.
fn winner(active: &[Interval], idle: impl Fn(u32) -> bool) -> u32 {
    let of_level = |wanted: Level| active.iter().find(|interval| interval.level == wanted);
    if let Some(lost) = of_level(Level::Lost) {
        return lost.owner;
    }
    let Some(context) = top(active) else {
        // Only a core that does something can be stolen from; what it was is not known.
        return of_level(Level::Steal).map_or(Owners::NOBODY, |steal| steal.owner);
    };
    if idle(context.owner) {
        let overlays = active.iter().filter(|one| matches!(one.level, Level::Overlay(_)));
        return overlays.max_by_key(|one| (one.level, one.start)).unwrap_or(context).owner;
    }
    of_level(Level::Steal).unwrap_or(context).owner
}
