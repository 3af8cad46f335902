//! Load beside a device under test: what a neighbour does to a CPU, told in numbers.
//!
//! One thread on one CPU, of ordinary priority unless another niceness is asked for. Each kind of work counts what it has
//! done, so that what was asked for can be held against what was reached.

mod packets;

use std::ffi::CString;
use std::hint::black_box;
use std::io;
use std::time::Duration;

use serde::Serialize;

use crate::OnReady;
use crate::clock::now_ns;
use crate::cpu::{CpuError, be_nice, pin};
use crate::signals::StopSignals;

use packets::Packets;

const LINE: usize = 64;
/// A neighbour's memory is larger than caches are, and is copied in pieces.
const COPIED: usize = 128 << 20;
const PIECE: usize = 1 << 20;
/// Turns between two looks at the clock: some microseconds.
const TURNS: u64 = 4096;
/// Work that is later than this is left out: there is no catching up in a burst.
const LATE_NS: u64 = 100_000_000;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Computes; what is done is counted in nanoseconds of CPU time.
    Cpu(Share),
    /// Reads cache lines of so many bytes, in a random order, each where the last one says; counted in
    /// lines.
    Cache {
        /// How much memory they fill.
        bytes: usize,
        /// When.
        share: Share,
    },
    /// Copies so many bytes per second from memory to memory; counted in bytes.
    Memory {
        /// How many.
        bytes_per_s: u64,
    },
    /// Is woken by a timer so many times per second; counted in times.
    Interrupts {
        /// How many times.
        per_s: u64,
    },
    /// Has the CPU's receive softirq deliver so many datagrams per second; counted in datagrams.
    Packets {
        /// How many.
        per_s: u64,
        /// How many come at once, up to 64.
        at_once: u64,
    },
}

/// So much CPU time of each period, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// CPU time of a period.
    pub busy_ns: u64,
    /// The period.
    pub period_ns: u64,
}

/// What was done, and how long that took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the unit of the work.
    pub done: u64,
    /// From its begin to its end.
    pub elapsed_ns: u64,
    /// CPU time of the thread meanwhile.
    pub cpu_ns: u64,
}

/// Why there is no load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The CPU.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// Who waits for it.
    #[error(transparent)]
    Ready(Box<dyn std::error::Error + Send + Sync>),
    /// No sockets in a network namespace of its own.
    #[error(
        "no packets can be received in a network namespace of their own: {0} (this needs root)"
    )]
    Packets(io::Error),
    /// The system refused.
    #[error("the load cannot be made: {0}")]
    System(#[from] io::Error),
}

/// Loads a CPU until SIGINT or SIGTERM, in a thread called `name`: the calling one.
pub fn load(
    work: Work,
    cpu: usize,
    nice: i32,
    name: &str,
    on_ready: Box<OnReady<'_>>,
) -> Result<Report, LoadError> {
    pin(cpu)?;
    let signals = StopSignals::install()?;
    call(name);
    be_nice(nice);
    let mut worker = Worker::new(work)?;
    on_ready().map_err(LoadError::Ready)?;
    let (began, cpu_began) = (now_ns(), cpu_time_ns());
    let mut done = 0;
    let mut due = began;
    while !signals.requested() {
        let period = worker.do_some(due, &mut done);
        due += period;
        let now = now_ns();
        if now > due + LATE_NS {
            due = now;
        }
        if now < due {
            signals.wait(None, Duration::from_nanos(due - now));
        }
    }
    let cpu_ns = cpu_time_ns() - cpu_began;
    let done = if matches!(work, Work::Cpu(_)) { cpu_ns } else { done };
    Ok(Report { done, elapsed_ns: now_ns() - began, cpu_ns })
}

/// Work with the memory that it needs, touched.
enum Worker {
    Cpu(Share),
    Cache { lines: Vec<[u32; LINE / 4]>, at: u32, share: Share },
    Memory { from: Vec<u8>, to: Vec<u8>, place: usize, period_ns: u64 },
    Interrupts { period_ns: u64 },
    Packets { packets: Packets, period_ns: u64 },
}

impl Worker {
    fn new(work: Work) -> Result<Self, LoadError> {
        Ok(match work {
            Work::Cpu(share) => Self::Cpu(share),
            Work::Cache { bytes, share } => {
                Self::Cache { lines: circle(bytes / LINE), at: 0, share }
            }
            Work::Memory { bytes_per_s } => Self::Memory {
                from: vec![1; COPIED],
                to: vec![2; COPIED],
                place: 0,
                period_ns: PIECE as u64 * 1_000_000_000 / bytes_per_s.max(1),
            },
            Work::Interrupts { per_s } => {
                Self::Interrupts { period_ns: 1_000_000_000 / per_s.max(1) }
            }
            Work::Packets { per_s, at_once } => Self::Packets {
                packets: Packets::new(at_once).map_err(LoadError::Packets)?,
                period_ns: at_once * 1_000_000_000 / per_s.max(1),
            },
        })
    }

    /// Does what is due at a time, and adds what was done; how long after that time there is more.
    fn do_some(&mut self, due: u64, done: &mut u64) -> u64 {
        match self {
            Self::Cpu(share) => {
                busy(*share, due, || {
                    (0..TURNS).for_each(|turn| {
                        black_box(turn);
                    });
                });
                share.period_ns
            }
            Self::Cache { lines, at, share } => {
                busy(*share, due, || {
                    for _ in 0..TURNS / 16 {
                        *at = lines[*at as usize][0];
                    }
                    black_box(*at);
                    *done += TURNS / 16;
                });
                share.period_ns
            }
            Self::Memory { from, to, place, period_ns } => {
                let piece = *place..*place + PIECE;
                to[piece.clone()].copy_from_slice(&from[piece]);
                black_box(to[*place]);
                *place = (*place + PIECE) % COPIED;
                *done += PIECE as u64;
                *period_ns
            }
            Self::Interrupts { period_ns } => {
                *done += 1;
                *period_ns
            }
            Self::Packets { packets, period_ns } => {
                *done += packets.burst();
                *period_ns
            }
        }
    }
}

/// Works for a share of a period, or until the period is over.
fn busy(share: Share, due: u64, mut some: impl FnMut()) {
    let until = cpu_time_ns() + share.busy_ns;
    while cpu_time_ns() < until && now_ns() < due + share.period_ns {
        some();
    }
}

/// Cache lines of which each has the place of another one, all in one circle (S. Sattolo, An
/// algorithm to generate a random cyclic permutation, Information Processing Letters 22, 1986).
fn circle(count: usize) -> Vec<[u32; LINE / 4]> {
    let mut lines: Vec<[u32; LINE / 4]> = vec![[0; LINE / 4]; count.max(2)];
    let mut next: Vec<u32> = (0..lines.len() as u32).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for place in (1..next.len()).rev() {
        // Marsaglia's xorshift64: any order without a pattern that a prefetcher knows will do.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        next.swap(place, (state % place as u64) as usize);
    }
    for (line, next) in lines.iter_mut().zip(next) {
        line[0] = next;
    }
    lines
}

/// The CPU time of the calling thread.
fn cpu_time_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec, and every thread has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Names the calling thread.
fn call(name: &str) {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the name ends with a zero; the kernel reads 16 bytes of it at most.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_form_one_circle() {
        for count in [2, 3, 64, 1000] {
            let lines = circle(count);
            let mut at = 0;
            let mut seen = vec![false; count];
            for _ in 0..count {
                assert!(!seen[at], "a circle of less than {count}");
                seen[at] = true;
                at = lines[at][0] as usize;
            }
            assert_eq!(at, 0);
        }
    }

    #[test]
    fn a_share_ends_with_its_cpu_time_or_its_period() {
        let share = Share { busy_ns: 2_000_000, period_ns: 1_000_000_000 };
        let before = cpu_time_ns();
        busy(share, now_ns(), || {});
        assert!(cpu_time_ns() - before >= share.busy_ns);
        let over = Share { busy_ns: 1_000_000_000, period_ns: 1 };
        let before = cpu_time_ns();
        busy(over, now_ns() - 1, || {});
        assert!(cpu_time_ns() - before < over.busy_ns);
    }

    #[test]
    fn each_work_counts_its_own() {
        let share = Share { busy_ns: 1_000_000, period_ns: 2_000_000 };
        let works = [
            (Work::Cache { bytes: 1 << 16, share }, 1, 2_000_000),
            (Work::Memory { bytes_per_s: 1 << 30 }, PIECE as u64, 976_562),
            (Work::Interrupts { per_s: 1000 }, 1, 1_000_000),
        ];
        for (work, least, period) in works {
            let mut done = 0;
            assert_eq!(Worker::new(work).expect("memory").do_some(now_ns(), &mut done), period);
            assert!(done >= least, "{work:?} did {done}");
        }
    }
}
