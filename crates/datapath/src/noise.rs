//! What takes a core that nobody asks for anything: a thread on it reads the clock in a loop, and keeps the
//! times between two reads that were longer than usual.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use rustix::thread::gettid;
use serde::Serialize;

use crate::clock::now_ns;
use crate::cpu::{CpuError, pin};
use crate::signals::StopSignals;

/// What a loop on one CPU saw.
#[derive(Clone, Debug, Serialize)]
pub struct Noise {
    /// Its CPU.
    pub cpu: usize,
    /// From its first read to its last.
    pub elapsed_ns: u64,
    /// How often it read the clock.
    pub reads: u64,
    /// The shortest time between two reads.
    pub least_ns: u64,
    /// The two reads around each gap, in order of time.
    pub gaps: Vec<(u64, u64)>,
    /// Gaps that there was no room for.
    pub unkept: u64,
    /// The time in all gaps, kept or not.
    pub gap_ns: u64,
}

/// Why there are no loops.
#[derive(Debug, thiserror::Error)]
pub enum NoiseError {
    /// A CPU.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// Who waits for them.
    #[error(transparent)]
    Ready(Box<dyn std::error::Error + Send + Sync>),
    /// The system refused.
    #[error("the clock cannot be watched: {0}")]
    System(#[from] io::Error),
}

/// Called with the ids of the threads once all of them are on their CPUs; they begin to count when
/// it returns.
pub type OnThreads<'a> =
    dyn FnOnce(&[i32]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + 'a;

/// Reads the clock on all `cpus` for so long, or until SIGINT or SIGTERM. Gaps are longer than
/// `above_ns`; there is room for `room` of each CPU.
pub fn watch(
    cpus: &[usize],
    lasts_ns: u64,
    above_ns: u64,
    room: usize,
    on_threads: Box<OnThreads<'_>>,
) -> Result<Vec<Noise>, NoiseError> {
    let signals = StopSignals::install()?;
    let (begin, over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (sender, placed) = mpsc::channel();
        let loops: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                let (sender, begin, over, signals) = (sender.clone(), &begin, &over, &signals);
                thread::Builder::new().name(format!("tt-noise-{cpu}")).spawn_scoped(
                    scope,
                    move || {
                        let pinned = pin(cpu);
                        // Written once, so that the loop faults no page in.
                        let mut gaps = vec![(1, 1); room];
                        gaps.clear();
                        let usable = pinned.is_ok();
                        // Who receives this waits for all of us.
                        let _ = sender.send(pinned.map(|()| gettid().as_raw_nonzero().get()));
                        while usable && !begin.load(Ordering::Acquire) {
                            if over.load(Ordering::Relaxed) {
                                break;
                            }
                            std::hint::spin_loop();
                        }
                        read(cpu, lasts_ns, above_ns, gaps, || {
                            signals.requested() || over.load(Ordering::Relaxed)
                        })
                    },
                )
            })
            .collect::<io::Result<_>>()?;
        let ready = placed
            .iter()
            .take(cpus.len())
            .collect::<Result<Vec<i32>, CpuError>>()
            .map_err(NoiseError::from)
            .and_then(|threads| on_threads(&threads).map_err(NoiseError::Ready));
        over.store(ready.is_err(), Ordering::Relaxed);
        begin.store(true, Ordering::Release);
        let found = loops
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        ready.map(|()| found)
    })
}

fn read(
    cpu: usize,
    lasts_ns: u64,
    above_ns: u64,
    mut gaps: Vec<(u64, u64)>,
    stopped: impl Fn() -> bool,
) -> Noise {
    let (mut reads, mut unkept, mut gap_ns) = (1, 0, 0);
    let mut least_ns = u64::MAX;
    let began = now_ns();
    let mut before = began;
    while before - began < lasts_ns && !stopped() {
        let now = now_ns();
        let step = now - before;
        reads += 1;
        least_ns = least_ns.min(step);
        if step > above_ns {
            gap_ns += step;
            if gaps.len() < gaps.capacity() {
                gaps.push((before, now));
            } else {
                unkept += 1;
            }
        }
        before = now;
    }
    let least_ns = if reads > 1 { least_ns } else { 0 };
    Noise { cpu, elapsed_ns: before - began, reads, least_ns, gaps, unkept, gap_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_holds_the_loop_is_a_gap_of_its_length() {
        let turns = Cell::new(0);
        let held = || {
            turns.set(turns.get() + 1);
            if turns.get() == 1000 {
                let until = now_ns() + 3_000_000;
                while now_ns() < until {}
            }
            turns.get() == 2000
        };
        let noise = read(0, u64::MAX, 2_000_000, Vec::with_capacity(100), held);
        assert!(noise.gaps.iter().any(|&(from, until)| until - from >= 3_000_000));
        assert_eq!(noise.gap_ns, noise.gaps.iter().map(|&(from, until)| until - from).sum::<u64>());
        assert_eq!(noise.reads, 2000);
        assert!(noise.least_ns < 3_000_000);
    }

    #[test]
    fn gaps_without_room_are_counted() {
        let noise = read(0, 1_000_000, 0, Vec::with_capacity(10), || false);
        assert!(noise.gaps.len() == noise.gaps.capacity() && noise.unkept > 0);
        assert!(noise.gap_ns > noise.gaps.iter().map(|&(from, until)| until - from).sum::<u64>());
        assert!(noise.gap_ns <= noise.elapsed_ns);
    }

    #[test]
    fn no_loop_begins_where_one_has_no_cpu() {
        let never = |_: &[i32]| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            panic!("called without all threads")
        };
        let found = watch(&[0, 1 << 20], u64::MAX, 0, 1, Box::new(never));
        assert!(matches!(found, Err(NoiseError::Cpu(_))));
    }
}
