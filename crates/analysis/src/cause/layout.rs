//! The records of one core as intervals with owners, in the order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::VecDeque;

use super::egress::Leaving;
use super::nested::{Level, Rank, level};
use super::{ASLEEP, FOREIGN, KERNEL_THREAD, Owner, Owners, RAISER, SERVED, STEAL, UNTOLD};
use crate::capture::CaptureError;
use crate::trace::{Ahead, Record, kind};

/// A task's record has this bit in its second word if the task is served.
const SERVED_BIT: u64 = 1 << 48;
/// And these if it is a thread of the kernel.
const KERNEL_THREAD_BITS: u64 = 0xff << 40;
/// Several short ones are laid out as at most so many.
const MOST_PIECES: u64 = 1024;
/// A softirq that was entered sooner after it was raised waited for the interrupt that raised it alone.
const RAISED_NS: u64 = 2000;
/// An interval is moved so many places on average at most, before all are sorted anew.
const STEPS: usize = 16;

/// A stretch of time that somebody may own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub start: u64,
    pub end: u64,
    pub owner: u32,
    pub level: Level,
    /// Its owner is an idle core.
    pub idle: bool,
}

impl Interval {
    /// By their starts. Of those that begin together the longer one comes first, and what refines it
    /// comes last.
    fn order(&self, other: &Self) -> Ordering {
        let rest = |of: &Self| (of.level == Level::Refinement, Reverse(of.end));
        self.start.cmp(&other.start).then_with(|| rest(self).cmp(&rest(other)))
    }

    fn comes_before(&self, other: &Self) -> bool {
        self.order(other).is_lt()
    }
}

/// What serves packets on a core.
pub(super) enum Server {
    /// Threads; who tells them is in the trace. Softirqs of the vector `foreign` serve elsewhere.
    Threads { foreign: Option<u32> },
    /// Softirqs, perhaps beside threads, and the packets that left at each tap point.
    Softirq { vector: u32, leaving: Vec<Leaving>, alone: bool },
}

/// A plain record, apart from its time: its rank, and the number of its owner.
#[derive(Clone, Copy)]
struct Met {
    aux: u64,
    id: u32,
    kind: u8,
    rank: Rank,
    owner: u32,
}

impl Met {
    /// A record of no kind, which no trace has.
    const NONE: Self = Self { aux: 0, id: 0, kind: 0, rank: Rank::NOTHING, owner: 0 };
}

/// So many are kept, a power of two.
const MET: usize = 64;

/// Makes intervals of the records of one core, which come block by block in the order of the file.
pub(super) struct Arranger {
    ended_ns: u64,
    server: Server,
    owners: Owners,
    /// Intervals before which others may still come, and how many of them are in order.
    pending: Vec<Interval>,
    sorted: usize,
    /// When the last of all that ever were ends.
    latest_ns: u64,
    /// Plain records that were met last, by what they say.
    met: Box<[Met; MET]>,
    /// Whether packets left during softirqs, of those that were asked for by
    /// [`plain_owner`](Self::plain_owner) alone: it can be asked only once.
    answers: VecDeque<bool>,
    /// The latest end of all records so far, those of lost ones left out.
    previous_end: Option<u64>,
    /// The last flush of the TLB that is a moment and has no vector yet.
    flush: Option<Record>,
    /// When the last function of an interrupt between processors began.
    function_ns: Option<u64>,
}

impl Arranger {
    /// For a trace that ended at a time, from a moment on that no record before it goes beyond; none for
    /// its beginning. A softirq during which no packet left is one of others.
    pub(super) fn new(ended_ns: u64, from_ns: Option<u64>, server: Server) -> Self {
        Self {
            ended_ns,
            server,
            owners: Owners::default(),
            pending: Vec::new(),
            sorted: 0,
            latest_ns: 0,
            met: Box::new([Met::NONE; MET]),
            answers: VecDeque::new(),
            previous_end: from_ns,
            flush: None,
            function_ns: None,
        }
    }

    /// Hands over the intervals that are known to be next, in the order of their starts, when nothing
    /// that is not there yet tells of a time before `earliest_ns`. They are forgotten then.
    pub(super) fn settle(&mut self, earliest_ns: u64, mut take: impl FnMut(&[Interval])) {
        // Steal may lie before its record, and not before the end of the one before that.
        let known = earliest_ns.min(self.previous_end.unwrap_or(u64::MAX));
        self.sort();
        let known = self.pending.partition_point(|interval| interval.start < known);
        take(&self.pending[..known]);
        self.pending.drain(..known);
        self.sorted = self.pending.len();
    }

    /// Hands over all that are left: no record that tells of their time comes any more.
    #[inline]
    pub(super) fn settle_all(&mut self, mut take: impl FnMut(&[Interval])) {
        if self.pending.is_empty() {
            return;
        }
        self.sort();
        take(&self.pending);
        self.pending.clear();
        self.sorted = 0;
    }

    /// Sorts the new ones among those that are pending. Nearly all stand a few places from where they
    /// belong, behind those that lie in them.
    fn sort(&mut self) {
        let new = self.pending.len() - self.sorted;
        let mut steps = STEPS * new;
        for place in self.sorted..self.pending.len() {
            let interval = self.pending[place];
            let mut at = place;
            while at > 0 && interval.comes_before(&self.pending[at - 1]) {
                if steps == 0 {
                    self.pending[at] = interval;
                    self.pending.sort_by(Interval::order);
                    return;
                }
                self.pending[at] = self.pending[at - 1];
                (at, steps) = (at - 1, steps - 1);
            }
            self.pending[at] = interval;
        }
    }

    /// Who has what tasks have while nobody has told the core of packets. None where tasks serve:
    /// who tells them is in the trace.
    pub(super) fn untold(&mut self) -> Option<u32> {
        let nobody = Owner { kind: UNTOLD, id: 0, more: 0 };
        self.untold_counts().then(|| self.owners.number(nobody))
    }

    fn untold_counts(&self) -> bool {
        matches!(self.server, Server::Softirq { alone: true, .. })
    }

    /// All owners that were met.
    pub(super) fn into_owners(self) -> Owners {
        self.owners
    }

    /// When the last of all intervals that came by [`add`](Self::add) ends.
    pub(super) fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// Takes one of the records of a block; `ahead` is what comes behind that.
    pub(super) fn add(
        &mut self,
        records: &[Record],
        place: usize,
        ahead: &Ahead,
    ) -> Result<(), CaptureError> {
        let record = &records[place];
        let start = record.start_ns;
        let mut end = record.end_ns();
        let previous_end = *self.previous_end.get_or_insert(start);
        if matches!(record.kind, kind::TASK | kind::IDLE) && record.dur_ns == u32::MAX {
            end = end.max(self.next_base(&records[place..], ahead));
        }
        if record.kind == kind::LOST {
            // What was lost lies before the record that found room again.
            let next = records.get(place + 1).map(Record::end_ns).or(ahead.end_ns);
            end = end.max(next.unwrap_or(self.ended_ns));
        }
        let mut left = false;
        if self.serves(record) {
            left = match self.answers.pop_front() {
                Some(left) => left,
                None => self.any_left(start, end)?,
            };
            if record.waited_ns() > RAISED_NS {
                let (told, owner) = (record.since_ns(), Owners::NOBODY);
                self.push(Interval {
                    start: told,
                    end: start,
                    owner,
                    level: Level::Told,
                    idle: false,
                });
            }
        }
        let mut owner = self.owner(record, left);
        match record.kind {
            kind::IPI_FUNCTION => self.function_ns = Some(start),
            kind::TLB_FLUSH if record.dur_ns == 0 => self.flush = Some(*record),
            kind::VECTOR => {
                // Kernels that do not tell the function tell the flush, as a moment within.
                let within = |time: u64| start <= time && time <= end;
                if let Some(flush) = self.flush.take_if(|flush| within(flush.start_ns))
                    && !self.function_ns.is_some_and(within)
                {
                    owner = self::owner(&flush);
                }
            }
            _ => {}
        }
        if let Some(level) = level(record) {
            let idle = owner.kind == kind::IDLE;
            let owner = self.owners.number(owner);
            let of = |start, end| Interval { start, end, owner, level, idle };
            match record.accumulated() {
                Some((window, number)) if level != Level::Lost => {
                    pieces(record, window, number, |start, end| self.push(of(start, end)));
                }
                _ => self.push(of(start, end)),
            }
        }
        if record.steal_ns > 0 {
            let stolen = u64::from(record.steal_ns).min(end.saturating_sub(previous_end));
            let end = start.max(previous_end + stolen);
            let owner = self.owners.number(Owner { kind: STEAL, id: 0, more: 0 });
            let level = Level::Steal;
            self.push(Interval { start: end - stolen, end, owner, level, idle: false });
        }
        if record.kind != kind::LOST {
            self.previous_end = Some(previous_end.max(end));
        }
        Ok(())
    }

    /// The rank of a record and the number of its owner, if the record is an interval by itself,
    /// whatever comes before or behind it. Nothing is counted: either [`add`](Self::add) or
    /// [`pass`](Self::pass) follows.
    #[inline]
    pub(super) fn plain(&mut self, record: &Record) -> Result<Option<(Rank, u32)>, CaptureError> {
        let &Record { kind, flags, steal_ns, dur_ns, aux, id, .. } = record;
        if u32::from(flags) | steal_ns != 0 || dur_ns == u32::MAX || self.flush.is_some() {
            return Ok(None);
        }
        let place = (u64::from(id) ^ u64::from(kind) << 2 ^ aux ^ aux >> 8) as usize % MET;
        let met = &self.met[place];
        if met.aux == aux && met.id == id && met.kind == kind {
            return Ok(Some((met.rank, met.owner)));
        }
        self.meet(record, place)
    }

    /// The same for a record that is not kept at its place among those that were met.
    #[cold]
    fn meet(&mut self, record: &Record, place: usize) -> Result<Option<(Rank, u32)>, CaptureError> {
        let Some(rank) = Rank::of(record) else { return Ok(None) };
        let serves = self.serves(record);
        if (serves && record.waited_ns() > RAISED_NS)
            // May be what tells the core of packets.
            || (record.kind == kind::IPI_DELAY && self.untold_counts())
        {
            return Ok(None);
        }
        let mut left = false;
        if serves {
            left = self.any_left(record.start_ns, record.end_ns())?;
            self.answers.push_back(left);
        }
        let owner = match rank {
            Rank::NOTHING => Owners::NOBODY,
            _ => self.owners.number(self.owner(record, left)),
        };
        if !serves {
            let &Record { kind, aux, id, .. } = record;
            self.met[place] = Met { aux, id, kind, rank, owner };
        }
        Ok(Some((rank, owner)))
    }

    /// Counts plain records in that were laid out, of which the first starts at a time and the last ends
    /// at one.
    #[inline]
    pub(super) fn pass(&mut self, start_ns: u64, latest_ns: u64) {
        self.previous_end = Some(self.previous_end.unwrap_or(start_ns).max(latest_ns));
        if !self.answers.is_empty() {
            self.answers.clear();
        }
    }

    /// Counts the functions of interrupts in that are among records that were laid out.
    #[inline]
    pub(super) fn pass_functions(&mut self, records: &[Record]) {
        if let Some(function) = records.iter().rfind(|record| record.kind == kind::IPI_FUNCTION) {
            self.function_ns = Some(function.start_ns);
        }
    }

    /// Whether a record is a softirq that may serve, and is looked at for packets that leave in it.
    /// Short ones that were gathered into one record are not.
    #[inline]
    fn serves(&self, record: &Record) -> bool {
        record.kind == kind::SOFTIRQ
            && matches!(self.server, Server::Softirq { vector, .. } if vector == record.id)
            && record.accumulated().is_none()
    }

    /// Whether a packet left within a time, which was not asked for before, or nobody says.
    fn any_left(&mut self, from: u64, until: u64) -> Result<bool, CaptureError> {
        let Server::Softirq { leaving, .. } = &mut self.server else { return Ok(false) };
        let mut left = leaving.is_empty();
        for point in leaving {
            left |= point.any_within(from, until)?;
        }
        Ok(left)
    }

    /// Who owns the time of a record, whatever comes before it; `left` is whether a packet left in it.
    #[inline]
    fn owner(&self, record: &Record, left: bool) -> Owner {
        let owner = owner(record);
        let more = match (record.kind, &self.server) {
            (kind::SOFTIRQ, Server::Threads { foreign }) if *foreign == Some(record.id) => {
                owner.more | FOREIGN
            }
            // What it receives for threads does not leave meanwhile.
            (kind::SOFTIRQ, Server::Softirq { alone: true, .. })
                if !left && self.serves(record) =>
            {
                owner.more | FOREIGN
            }
            // Who raised it matters of what does not serve.
            (kind::SOFTIRQ, _) if self.serves(record) => 0,
            (kind::IDLE, Server::Threads { foreign: Some(_) }) => ASLEEP,
            _ => owner.more,
        };
        Owner { more, ..owner }
    }

    fn push(&mut self, interval: Interval) {
        if interval.start < interval.end {
            self.latest_ns = self.latest_ns.max(interval.end);
            self.pending.push(interval);
        }
    }

    /// When the next record of a task or of idle begins, behind the first of `records`: there one
    /// ended that lasted longer than a record can tell.
    fn next_base(&self, records: &[Record], ahead: &Ahead) -> u64 {
        if !records[0].is_base() {
            return self.ended_ns;
        }
        let next = records[1..].iter().find(|record| record.is_base());
        next.map(|record| record.start_ns).or(ahead.base_ns).unwrap_or(self.ended_ns)
    }
}

/// Lays several short intervals out evenly: the first at the start, the last at the end, whole
/// nanoseconds, and as long together as they were.
fn pieces(record: &Record, window: u64, number: u64, mut each: impl FnMut(u64, u64)) {
    let total = u64::from(record.dur_ns);
    let number = number.min(MOST_PIECES).min(total.max(1));
    let share =
        |of: u64, place: u64| (u128::from(of) * u128::from(place) / u128::from(number)) as u64;
    let last = total - share(total, number - 1);
    let room = u128::from(window - last);
    for place in 0..number {
        let after = room * u128::from(place) / u128::from((number - 1).max(1));
        let start = record.start_ns + after as u64;
        each(start, start + share(total, place + 1) - share(total, place));
    }
}

/// Who owns the time of a record.
fn owner(record: &Record) -> Owner {
    let Record { kind, aux, .. } = *record;
    let id = u64::from(record.id);
    let (kind, id, more) = match kind {
        kind::IPI_FUNCTION => (kind, aux, id),
        kind::TASK => {
            let thread = if aux & KERNEL_THREAD_BITS == 0 { 0 } else { KERNEL_THREAD };
            (kind, id, thread | if aux & SERVED_BIT == 0 { 0 } else { SERVED })
        }
        kind::WORK | kind::HRTIMER => (kind, aux, 0),
        kind::SOFTIRQ => (kind, id, record.raiser() << RAISER),
        kind::IRQ | kind::VECTOR | kind::IDLE | kind::TLB_FLUSH | kind::KVM_EXIT => (kind, id, 0),
        kind::LOST => (super::UNSEEN, 0, 0),
        kind => (kind, 0, 0),
    };
    Owner { kind, id, more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_whose_threads_sleep_is_told_from_one_without_packets() {
        let record = Record { kind: kind::IDLE, ..Record::default() };
        let more = |server| Arranger::new(0, None, server).owner(&record, false).more;
        assert_eq!(more(Server::Threads { foreign: Some(3) }), ASLEEP);
        assert_eq!(more(Server::Threads { foreign: None }), 0);
        assert_eq!(more(Server::Softirq { vector: 3, leaving: Vec::new(), alone: true }), 0);
    }

    #[test]
    fn short_ones_are_laid_out_from_the_start_to_the_end() {
        let record = Record { start_ns: 1_000, dur_ns: 10, ..Record::default() };
        let laid = |window, number| {
            let mut found = Vec::new();
            pieces(&record, window, number, |start, end| found.push((start, end)));
            found
        };
        assert_eq!(laid(100, 1), [(1_000, 1_010)]);
        assert_eq!(laid(100, 2), [(1_000, 1_005), (1_095, 1_100)]);
        // At a constant rate they are where they were.
        let every_forty: Vec<_> = (0..5).map(|at| (1_000 + 40 * at, 1_002 + 40 * at)).collect();
        assert_eq!(laid(162, 5), every_forty);
        assert_eq!(laid(10, 3), [(1_000, 1_003), (1_003, 1_006), (1_006, 1_010)]);
    }
}
