//! Records that lie in each other, as stretches, without the detour of [`sweep`](super::sweep).
//!
//! Nearly all records of a core do: an interrupt lies in a softirq or a task, and its function in the
//! interrupt. A core's records come in the order in which they ended, so that what lies in a record has
//! come when it comes. It then has what the others leave of its time.

use std::cmp::Reverse;

use crate::trace::{Record, THROTTLED, kind};

/// How an interval stands to others that cover the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Says what an idle core waits for.
    Overlay(u8),
    /// The core knows of packets that it is to serve.
    Told,
    /// Has the core; higher ones lie on lower ones.
    Context(u8),
    /// Has what tasks and idle have: the task that serves may not run, whoever else does.
    Throttled,
    /// Names what the context did in which it begins.
    Refinement,
    /// Has any time but idle.
    Steal,
    /// Has any time.
    Lost,
}

/// The level of a record; none for one that owns no time.
pub(super) fn level(record: &Record) -> Option<Level> {
    Some(match record.kind {
        kind::TASK | kind::IDLE => Level::Context(0),
        kind::SOFTIRQ => Level::Context(1),
        kind::IRQ | kind::VECTOR => Level::Context(2),
        kind::NMI => Level::Context(3),
        kind::IPI_FUNCTION
        | kind::WORK
        | kind::HRTIMER
        | kind::TLB_FLUSH
        | kind::PAGE_FAULT
        | kind::RECLAIM
        | kind::COMPACTION
        | kind::FOREIGN_RX
        | kind::KVM_EXIT => Level::Refinement,
        kind::IPI_DELAY => Level::Overlay(0),
        kind::WAKEUP => Level::Overlay(1),
        kind::RUNNABLE if record.aux & THROTTLED != 0 => Level::Throttled,
        kind::RUNNABLE => Level::Overlay(2),
        kind::LOST => Level::Lost,
        _ => return None,
    })
}

/// More records than these are not tried.
const MOST: usize = 64;
/// So many stretches they can have.
const ROOM: usize = 3 * MOST;

/// What a record is to others: less than [`CONTEXTS`] where it has the core, and how it stands to others
/// then. What is higher has the core from what is lower, but a task and idle do not differ in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank(u8);

impl Rank {
    const IDLE: Self = Self(0);
    const TASK: Self = Self(1);
    /// It names what its context did.
    const REFINES: Self = Self(0xf0);
    /// It names idle time.
    const NAMES: Self = Self(0xf1);
    /// It owns no time.
    pub(super) const NOTHING: Self = Self(0xf2);

    /// The rank of a record; none where it says more than by whom its time was had.
    pub(super) fn of(record: &Record) -> Option<Self> {
        let throttled = record.kind == kind::RUNNABLE && record.aux & THROTTLED != 0;
        match level(record) {
            // It may be a moment within another record.
            _ if record.kind == kind::TLB_FLUSH || throttled => None,
            None => Some(Self::NOTHING),
            Some(Level::Context(0)) if record.kind == kind::IDLE => Some(Self::IDLE),
            Some(Level::Context(level)) => Some(Self(1 + level)),
            Some(Level::Refinement) => Some(Self::REFINES),
            Some(Level::Overlay(_)) => Some(Self::NAMES),
            Some(_) => None,
        }
    }

    /// Whether it has the core by itself.
    pub(super) fn has_core(self) -> bool {
        self.0 < Self::REFINES.0
    }

    /// Whether it is time of a task, or of what a task did.
    pub(super) fn is_task(self) -> bool {
        self == Self::TASK
    }

    fn level(self) -> u8 {
        self.0.max(1)
    }
}

/// The records of a nest, and their stretches. Columns: what was just written piece by piece would be
/// slow to read as a whole.
pub(super) struct Nest {
    records: usize,
    /// When each record starts and ends.
    from: [u64; MOST],
    until: [u64; MOST],
    owner: [u32; MOST],
    rank: [Rank; MOST],
    stretches: usize,
    /// When each stretch starts and ends, and its record. They ascend.
    start: [u64; ROOM],
    end: [u64; ROOM],
    whose: [u8; ROOM],
    /// What names idle time: how much it has to say, since when, until when, and its record.
    names: Vec<(Level, u64, Reverse<u64>, u8)>,
    named: Vec<(u64, u64, u8)>,
    /// Whether some refinement may have no context.
    refines: bool,
}

impl Default for Nest {
    fn default() -> Self {
        Self {
            records: 0,
            from: [0; MOST],
            until: [0; MOST],
            owner: [0; MOST],
            rank: [Rank::NOTHING; MOST],
            stretches: 0,
            start: [0; ROOM],
            end: [0; ROOM],
            whose: [0; ROOM],
            names: Vec::new(),
            named: Vec::new(),
            refines: false,
        }
    }
}

impl Nest {
    /// Forgets all records.
    #[inline]
    pub(super) fn clear(&mut self) {
        (self.records, self.stretches) = (0, 0);
        if self.refines || !self.names.is_empty() {
            self.refines = false;
            self.names.clear();
        }
    }

    /// Takes a record with its rank and the number of its owner; whether it lies in others, or others
    /// in it.
    #[inline]
    pub(super) fn take(&mut self, record: &Record, rank: Rank, owner: u32) -> bool {
        let (start, end) = (record.start_ns, record.end_ns());
        let place = self.records;
        if start >= end || rank == Rank::NOTHING || place == MOST {
            return place < MOST;
        }
        self.records += 1;
        self.from[place] = start;
        self.until[place] = end;
        self.owner[place] = owner;
        self.rank[place] = rank;
        if !rank.has_core() {
            if rank == Rank::NAMES {
                return self.take_name(record, place);
            }
            self.refines = true;
        }
        match self.stretches.checked_sub(1) {
            Some(last) if self.end[last] > start => self.surround(place),
            _ if self.stretches == ROOM => false,
            _ => {
                self.put(self.stretches, start, end, place as u8);
                self.stretches += 1;
                true
            }
        }
    }

    /// Takes a record that names idle time.
    #[cold]
    fn take_name(&mut self, record: &Record, place: usize) -> bool {
        let (start, end) = (self.from[place], Reverse(self.until[place]));
        let level = level(record);
        self.names.extend(level.map(|level| (level, start, end, place as u8)));
        level.is_some()
    }

    #[inline]
    fn put(&mut self, at: usize, start: u64, end: u64, whose: u8) {
        self.start[at] = start;
        self.end[at] = end;
        self.whose[at] = whose;
    }

    /// Gives a record the time that those in it leave.
    fn surround(&mut self, place: usize) -> bool {
        let (from, until) = (self.from[place], self.until[place]);
        if self.end[self.stretches - 1] > until {
            return false;
        }
        let mut first = self.stretches;
        // Where nothing lies between two stretches, or before the first one, there is no room.
        let mut gaps = usize::from(self.end[first - 1] < until);
        while first > 0 && self.start[first - 1] >= from {
            first -= 1;
            if !self.is_in(usize::from(self.whose[first]), place) {
                return false;
            }
            let before = if first > 0 { self.end[first - 1].max(from) } else { from };
            gaps += usize::from(before < self.start[first]);
        }
        if first > 0 && self.end[first - 1] > from {
            return false;
        }
        if self.stretches + gaps > ROOM {
            return false;
        }
        let mut at = self.stretches + gaps;
        let mut end = until;
        for inner in (first..self.stretches).rev() {
            let (inner_start, inner_end) = (self.start[inner], self.end[inner]);
            if inner_end < end {
                at -= 1;
                self.put(at, inner_end, end, place as u8);
            }
            at -= 1;
            self.put(at, inner_start, inner_end, self.whose[inner]);
            end = inner_start;
        }
        if from < end {
            self.put(at - 1, from, end, place as u8);
        }
        self.stretches += gaps;
        true
    }

    /// Whether a record lies in another one that came later, and stands on it.
    #[inline]
    fn is_in(&mut self, inner: usize, outer: usize) -> bool {
        let (from, until) = (self.from[outer], self.until[outer]);
        let (rank, below) = (self.rank[inner], self.rank[outer]);
        if self.from[inner] < from || (self.from[inner], self.until[inner]) == (from, until) {
            return false;
        }
        if rank == Rank::REFINES {
            // What refines idle is no idle time.
            self.rank[inner] = if below == Rank::IDLE { Rank::TASK } else { below };
            return true;
        }
        // A refinement that begins together with a context would refine that one.
        if below == Rank::REFINES { self.from[inner] > from } else { rank.level() >= below.level() }
    }

    /// Finds the stretches of all records. Whether there are any: what refines nothing has no time.
    #[inline]
    pub(super) fn is_whole(&mut self) -> bool {
        if self.refines && self.rank[..self.records].contains(&Rank::REFINES) {
            return false;
        }
        self.names.is_empty() || self.name_idle()
    }

    /// The stretches in the order of time: start, end and owner. `untold` has the time of tasks.
    #[inline]
    pub(super) fn stretches(&self, untold: Option<u32>) -> impl Iterator<Item = (u64, u64, u32)> {
        let whose = self.whose[..self.stretches].iter().map(|&whose| usize::from(whose));
        whose.zip(&self.start).zip(&self.end).map(move |((whose, &start), &end)| {
            let of_task = untold.filter(|_| self.rank[whose].is_task());
            (start, end, of_task.unwrap_or(self.owner[whose]))
        })
    }

    /// Gives idle time to what names it: to what has most to say, and of those to what began later.
    /// Whether there was room.
    fn name_idle(&mut self) -> bool {
        self.names.sort_unstable();
        for &(_, from, Reverse(until), name) in &self.names {
            self.named.clear();
            for at in 0..self.stretches {
                let (start, end, whose) = (self.start[at], self.end[at], self.whose[at]);
                let (inner, outer) = (start.max(from), end.min(until));
                if inner >= outer || self.rank[usize::from(whose)] != Rank::IDLE {
                    self.named.push((start, end, whose));
                    continue;
                }
                let parts = [(start, inner, whose), (inner, outer, name), (outer, end, whose)];
                self.rank[usize::from(name)] = Rank::IDLE;
                self.named.extend(parts.into_iter().filter(|part| part.0 < part.1));
            }
            if self.named.len() > ROOM {
                return false;
            }
            self.stretches = self.named.len();
            for (at, &(start, end, whose)) in self.named.iter().enumerate() {
                (self.start[at], self.end[at], self.whose[at]) = (start, end, whose);
            }
        }
        true
    }
}
