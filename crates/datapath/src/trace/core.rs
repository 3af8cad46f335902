//! What the tracer's programs and user space share of each core: `struct core` in bpf/trace.h.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{Kind, Record};

/// No task was seen yet.
const UNKNOWN: u32 = u32::MAX;
/// Sums of vectors: 1 to 8, and place 0 for interrupts of devices; those of softirqs follow.
const VECTORS: usize = 9;
const SUMS: usize = 1 + VECTORS + 10;

/// Intervals of one kind below the floor.
#[derive(Debug, Default)]
#[repr(C)]
struct Sum {
    start: AtomicU64,
    end: AtomicU64,
    total: AtomicU64,
    /// How many in the lower half, and whose in the upper one.
    count: AtomicU64,
}

/// The first part of a core; what follows is the programs' own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Core {
    pub(super) head: AtomicU64,
    lost: AtomicU64,
    lost_since: AtomicU64,
    first: AtomicU64,
    cpu: AtomicU64,
    padding0: [u64; 3],
    pub(super) tail: AtomicU64,
    pub(super) bell_at: AtomicU64,
    padding1: [u64; 6],
    /// Written by other cores.
    told: [u64; 8],
    sums: [Sum; SUMS],
    task_start: AtomicU64,
    task_aux: AtomicU64,
    task_pid: AtomicU64,
    idle_start: AtomicU64,
    idle_state: AtomicU64,
    passes: AtomicU64,
    pass: AtomicU64,
}

impl Core {
    /// Whether the word at this place of a core stays when all that is open is forgotten.
    pub(super) fn stays(at: usize) -> bool {
        let counts = [offset_of!(Self, passes), offset_of!(Self, pass)];
        at < offset_of!(Self, told) || counts.contains(&at)
    }

    /// Tells the programs where the core's records go, and that some task has the core from now on.
    pub(super) fn begin(&self, cpu: usize, first: usize, now: u64) {
        self.first.store(first as u64, Ordering::Relaxed);
        self.cpu.store(cpu as u64, Ordering::Relaxed);
        self.task_start.store(now, Ordering::Relaxed);
        self.task_pid.store(UNKNOWN.into(), Ordering::Release);
    }

    /// The same again, where all that was open is forgotten.
    pub(super) fn begin_again(&self, now: u64) {
        self.begin(self.cpu().into(), self.first.load(Ordering::Relaxed) as usize, now);
    }

    /// The CPU.
    pub(super) fn cpu(&self) -> u16 {
        self.cpu.load(Ordering::Acquire) as u16
    }

    /// Records that found no room so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    /// When the first one did not since this was last asked; none when nobody noted it.
    pub(super) fn take_lost_since(&self) -> Option<u64> {
        Some(self.lost_since.swap(0, Ordering::AcqRel)).filter(|&since| since > 0)
    }

    /// Usual passes, which have no records of their own, and how long half of all passes take at most,
    /// in ns.
    pub(super) fn passes(&self) -> (u64, u64) {
        (self.passes.load(Ordering::Acquire), self.pass.load(Ordering::Acquire))
    }

    /// What has not ended, or waits to be more, when no program runs any more: sums of short
    /// intervals, and the task that has the core, or that it idles.
    pub(super) fn unfinished(&self, now: u64) -> Vec<Record> {
        let cpu = self.cpu();
        let mut found: Vec<Record> = Vec::new();
        for (place, sum) in self.sums.iter().enumerate() {
            let [start, end, total, count] = [&sum.start, &sum.end, &sum.total, &sum.count]
                .map(|word| word.load(Ordering::Acquire));
            if start > 0 {
                let kind = match place {
                    0 => Kind::IRQ,
                    1..=VECTORS => Kind::VECTOR,
                    _ => Kind::SOFTIRQ,
                };
                let aux = (count & 0xffff_ffff) | end.saturating_sub(start) << 32;
                let id = (count >> 32) as u32;
                found.push(Record::new(start, total, kind, cpu, aux, id).added_up());
            }
        }
        let pid = self.task_pid.load(Ordering::Acquire) as u32;
        if pid != UNKNOWN && pid != 0 {
            let start = self.task_start.load(Ordering::Acquire);
            let aux = self.task_aux.load(Ordering::Acquire);
            let dur = now.saturating_sub(start);
            found.push(Record::new(start, dur, Kind::TASK, cpu, aux, pid));
        }
        let start = self.idle_start.load(Ordering::Acquire);
        if start > 0 && start < now {
            let state = self.idle_state.load(Ordering::Acquire) as u32;
            found.push(Record::new(start, now - start, Kind::IDLE, cpu, 0, state));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn a_core_has_the_layout_of_the_programs() {
        assert_eq!(size_of::<Sum>(), 32);
        let offsets = [offset_of!(Core, lost_since), offset_of!(Core, cpu), offset_of!(Core, tail)];
        assert_eq!(offsets, [16, 32, 64]);
        let offsets = [offset_of!(Core, sums), offset_of!(Core, task_start)];
        assert_eq!(offsets, [192, 192 + 32 * SUMS]);
        assert_eq!(offset_of!(Core, idle_start), 192 + 32 * SUMS + 24);
    }

    #[test]
    fn what_is_unfinished_is_told() {
        let core = Core::default();
        core.begin(3, 0, 100);
        assert_eq!(core.unfinished(500), []);
        core.task_pid.store(7, Ordering::Relaxed);
        core.task_aux.store(9, Ordering::Relaxed);
        let sum = &core.sums[VECTORS + 4];
        sum.start.store(200, Ordering::Relaxed);
        sum.end.store(260, Ordering::Relaxed);
        sum.total.store(30, Ordering::Relaxed);
        sum.count.store(3 << 32 | 2, Ordering::Relaxed);
        let softirq = Record::new(200, 30, Kind::SOFTIRQ, 3, 60 << 32 | 2, 3).added_up();
        let task = Record::new(100, 400, Kind::TASK, 3, 9, 7);
        assert_eq!(core.unfinished(500), [softirq, task]);
        core.task_pid.store(0, Ordering::Relaxed);
        core.idle_start.store(300, Ordering::Relaxed);
        core.idle_state.store(2, Ordering::Relaxed);
        let idle = Record::new(300, 200, Kind::IDLE, 3, 0, 2);
        assert_eq!(core.unfinished(500), [softirq, idle]);
    }
}
