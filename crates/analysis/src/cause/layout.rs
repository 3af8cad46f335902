//! The records of one core as intervals with owners.

use super::egress::FOREIGN_FLAG;
use super::{FOREIGN, KERNEL_THREAD, Owner, Owners, SERVED, STEAL};
use crate::trace::{Record, kind};

/// A task's record has this bit in its second word if the task is served.
const SERVED_BIT: u64 = 1 << 48;
/// And these if it is a thread of the kernel.
const KERNEL_THREAD_BITS: u64 = 0xff << 40;
/// Several short ones are laid out as at most so many.
const MOST_PIECES: u64 = 1024;

/// How an interval stands to others that cover the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Says what an idle core waits for.
    Overlay(u8),
    /// Has the core; higher ones lie on lower ones.
    Context(u8),
    /// Names what the context did in which it begins.
    Refinement,
    /// Has any time but idle.
    Steal,
    /// Has any time.
    Lost,
}

const TASK_LEVEL: Level = Level::Context(0);

/// A stretch of time that somebody may own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub start: u64,
    pub end: u64,
    pub level: Level,
    pub owner: u32,
}

/// The intervals of records of one core, which come in the order of the file.
pub(super) fn intervals(records: &[Record], ended_ns: u64, owners: &mut Owners) -> Vec<Interval> {
    let mut found = Vec::with_capacity(records.len());
    let next_base = starts_after(records, ended_ns);
    let mut flush: Option<Record> = None;
    let mut function_ns = None;
    let mut previous_end = records.first().map_or(0, |record| record.start_ns);
    for (place, record) in records.iter().enumerate() {
        let level = level(record.kind);
        let start = record.start_ns;
        let mut end = record.end_ns();
        if record.kind == kind::LOST {
            // What was lost lies before the record that found room again.
            end = end.max(records.get(place + 1).map_or(ended_ns, Record::end_ns));
        } else if level == Some(TASK_LEVEL) && record.dur_ns == u32::MAX {
            end = end.max(next_base[place]);
        }
        let mut owner = owner(record);
        match record.kind {
            kind::IPI_FUNCTION => function_ns = Some(start),
            kind::TLB_FLUSH if record.dur_ns == 0 => flush = Some(*record),
            kind::VECTOR => {
                // Kernels that do not tell the function tell the flush, as a moment within.
                let within = |time: u64| start <= time && time <= end;
                if let Some(flush) = flush.take_if(|flush| within(flush.start_ns))
                    && !function_ns.is_some_and(within)
                {
                    owner = self::owner(&flush);
                }
            }
            _ => {}
        }
        if let Some(level) = level {
            let owner = owners.number(owner);
            let mut push = |start, end| found.push(Interval { start, end, level, owner });
            match record.accumulated() {
                Some((window, number)) if level != Level::Lost => {
                    pieces(record, window, number, push);
                }
                _ => push(start, end),
            }
        }
        if record.steal_ns > 0 {
            let stolen = u64::from(record.steal_ns).min(end.saturating_sub(previous_end));
            let end = start.max(previous_end + stolen);
            let owner = owners.number(Owner { kind: STEAL, id: 0, more: 0 });
            found.push(Interval { start: end - stolen, end, level: Level::Steal, owner });
        }
        if record.kind != kind::LOST {
            previous_end = previous_end.max(end);
        }
    }
    found.retain(|interval| interval.start < interval.end);
    found
}

/// For each record of a task or of idle, the start of the next one: where one ended that lasted
/// longer than a record can tell.
fn starts_after(records: &[Record], ended_ns: u64) -> Vec<u64> {
    let mut next = ended_ns;
    let mut starts = vec![ended_ns; records.len()];
    for (record, slot) in records.iter().zip(&mut starts).rev() {
        if level(record.kind) == Some(TASK_LEVEL) && record.accumulated().is_none() {
            *slot = next;
            next = record.start_ns;
        }
    }
    starts
}

/// Lays several short intervals out evenly: the first at the start, whole nanoseconds, and as long
/// together as they were.
fn pieces(record: &Record, window: u64, number: u64, mut each: impl FnMut(u64, u64)) {
    let total = u64::from(record.dur_ns);
    let number = number.min(MOST_PIECES).min(total.max(1));
    let share =
        |of: u64, place: u64| (u128::from(of) * u128::from(place) / u128::from(number)) as u64;
    for place in 0..number {
        let start = record.start_ns + share(window, place);
        each(start, start + share(total, place + 1) - share(total, place));
    }
}

/// The level of a kind; none for one that owns no time.
fn level(kind: u8) -> Option<Level> {
    Some(match kind {
        kind::TASK | kind::IDLE => TASK_LEVEL,
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
        | kind::KVM_EXIT => Level::Refinement,
        kind::IPI_DELAY => Level::Overlay(0),
        kind::WAKEUP => Level::Overlay(1),
        kind::RUNNABLE => Level::Overlay(2),
        kind::LOST => Level::Lost,
        _ => return None,
    })
}

/// Who owns the time of a record.
fn owner(record: &Record) -> Owner {
    let Record { kind, flags, aux, .. } = *record;
    let id = u64::from(record.id);
    let (kind, id, more) = match kind {
        kind::IPI_FUNCTION => (kind, aux, id),
        kind::SOFTIRQ => (kind, id, if flags & FOREIGN_FLAG == 0 { 0 } else { FOREIGN }),
        kind::TASK => {
            let thread = if aux & KERNEL_THREAD_BITS == 0 { 0 } else { KERNEL_THREAD };
            (kind, id, thread | if aux & SERVED_BIT == 0 { 0 } else { SERVED })
        }
        kind::WORK | kind::HRTIMER => (kind, aux, 0),
        kind::IRQ | kind::VECTOR | kind::IDLE | kind::TLB_FLUSH | kind::KVM_EXIT => (kind, id, 0),
        kind::LOST => (super::UNSEEN, 0, 0),
        kind => (kind, 0, 0),
    };
    Owner { kind, id, more }
}
