//! Taps: stamps of every packet that passes a link, into one stamp file for each link.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use libbpf_rs::ErrorKind;
use tailtap_analysis::stamps::TapCounts;

use crate::clock::now_ns;
use crate::cpu::{CpuError, pin, synchronize_rcu};
use crate::interface::{Interface, InterfaceError};
pub use crate::program::Hook;
use crate::program::{Attachment, Program, Verdict, enable_statistics};
use crate::ring::Ring;
use crate::signals::StopSignals;
use crate::writer::StampWriter;

/// Room for stamps that a tap has unless told otherwise.
pub const DEFAULT_RECORDS: u64 = 4 << 20;
/// The largest ring: 2^26 records, 1 GiB.
const MAX_RECORDS: u64 = 1 << 26;
/// Records moved from ring to file at once.
const CHUNK: usize = 1 << 16;
/// A rate that no tap on one link exceeds, in packets for each second.
const FASTEST: u64 = 4_000_000;
/// What an interface is warned about that was deleted while it was tapped.
const VANISHED: &str = "interface vanished";

/// What becomes of a packet after its stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// It goes on its way.
    Pass,
    /// It is absorbed.
    Drop,
    /// It leaves through this interface.
    To(String),
}

/// A link to tap.
#[derive(Clone, Debug)]
pub struct Link {
    /// What to call it.
    pub name: String,
    /// The interface whose packets are stamped.
    pub interface: String,
    /// Which of them.
    pub hook: Hook,
    /// What becomes of them.
    pub forward: Forward,
    /// The stamp file.
    pub path: PathBuf,
}

/// What to tap and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The links; at least one.
    pub links: Vec<Link>,
    /// Room in each link's ring; rounded up to a power of two.
    pub records: u64,
    /// End after this long.
    pub duration_ns: Option<u64>,
    /// End when every link has seen this many packets with an id.
    pub count: Option<u64>,
    /// Where the thread that writes the files runs.
    pub cpu: Option<usize>,
    /// Measure what the taps cost.
    pub measure_cost: bool,
}

/// What a tap did on one link.
#[derive(Clone, Debug)]
pub struct Report {
    /// The link.
    pub link: Link,
    /// The counts, as in the file.
    pub counts: TapCounts,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Mean time that the eBPF program took for a packet, in nanoseconds, if asked for.
    pub cost_ns: Option<f64>,
}

/// A tap could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The ring would be empty or too large.
    #[error("{records} records are not possible: give --records a number from 1 to {MAX_RECORDS}")]
    Records {
        /// The number asked for.
        records: u64,
    },
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The CPU cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The privilege is missing.
    #[error(
        "the kernel does not permit loading eBPF programs: run as root (or with CAP_BPF and \
         CAP_NET_ADMIN); if this is root, the limit of locked memory (`ulimit -l`) or a sandbox \
         is in the way"
    )]
    NotPermitted,
    /// No memory for the ring.
    #[error("no memory for {records} records of 16 B in the kernel: give --records a lower number")]
    Memory {
        /// The number asked for.
        records: u64,
    },
    /// The program was refused.
    #[error("the kernel refused the tap's eBPF program (it needs Linux 5.12 or later): {reason}")]
    Refused {
        /// What the kernel said.
        reason: String,
    },
    /// There is a tap already.
    #[error(
        "interface {name} has a tap already: stop it, or if it was killed remove it with \
         `tc filter del dev {name} ingress pref 1`"
    )]
    Busy {
        /// The interface.
        name: String,
    },
    /// The program could not be attached.
    #[error("cannot attach the tap to interface {name}: {reason}")]
    Attach {
        /// The interface.
        name: String,
        /// What the kernel said.
        reason: String,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source} (choose another place with --write)", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The caller's function failed.
    #[error("{0}")]
    Ready(Box<dyn Error + Send + Sync>),
}

/// Called once all taps are attached.
pub type OnReady<'a> = dyn FnOnce() -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// Taps the links until SIGINT, SIGTERM, the duration or the count, and reports link by link, in
/// the order given. Pins the calling thread if asked to.
pub fn tap(options: &Options, on_ready: Box<OnReady<'_>>) -> Result<Vec<Report>, TapError> {
    let records = options.records;
    if !(1..=MAX_RECORDS).contains(&records) {
        return Err(TapError::Records { records });
    }
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    let system = |what| move |source| TapError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let statistics = options
        .measure_cost
        .then(enable_statistics)
        .transpose()
        .map_err(system("measure eBPF programs"))?;

    let slots = records.next_power_of_two();
    let prepared: Vec<Prepared> = options
        .links
        .iter()
        .map(|link| Prepared::new(link, slots as u32))
        .collect::<Result<_, _>>()?;
    // All files and programs are ready before the first link is touched.
    let mut taps: Vec<LiveTap<'_>> =
        prepared.iter().map(LiveTap::start).collect::<Result<_, _>>()?;
    on_ready().map_err(TapError::Ready)?;

    let end = options.duration_ns.map(|ns| now_ns().saturating_add(ns));
    let period = poll_period(slots);
    while !signals.requested() {
        let left = end.map_or(u64::MAX, |end| end.saturating_sub(now_ns()));
        let enough = |count| taps.iter().all(|tap| tap.seen() >= count);
        if left == 0 || options.count.is_some_and(enough) {
            break;
        }
        signals.wait(None, period.min(Duration::from_nanos(left)));
        for tap in &mut taps {
            if tap.ring.should_drain() {
                tap.drain()?;
            }
        }
    }

    for tap in &mut taps {
        tap.detach();
    }
    synchronize_rcu();
    drop(statistics);
    taps.into_iter().map(LiveTap::finish).collect()
}

/// How often to look whether a ring of `slots` must be drained: often enough that the three
/// quarters which are then still free cannot fill up in between, and not more often.
fn poll_period(slots: u64) -> Duration {
    let safe = Duration::from_nanos(slots * 1_000_000_000 / 2 / FASTEST);
    safe.clamp(Duration::from_micros(500), Duration::from_millis(100))
}

/// A link whose interfaces were found, with its program loaded.
struct Prepared<'a> {
    link: &'a Link,
    interface: Interface,
    forward: Option<Interface>,
    program: Program,
}

impl<'a> Prepared<'a> {
    fn new(link: &'a Link, slots: u32) -> Result<Self, TapError> {
        let interface = Interface::find(&link.interface)?;
        let forward = match &link.forward {
            Forward::To(name) => Some(Interface::find(name)?),
            Forward::Pass | Forward::Drop => None,
        };
        let verdict = match (&link.forward, &forward) {
            (_, Some(interface)) => Verdict::Redirect(interface.index),
            (Forward::Drop, _) => Verdict::Drop,
            _ => Verdict::Pass,
        };
        let program = Program::load(verdict, slots).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => TapError::NotPermitted,
            ErrorKind::OutOfMemory => TapError::Memory { records: slots.into() },
            _ => TapError::Refused { reason: error.to_string() },
        })?;
        Ok(Self { link, interface, forward, program })
    }

    fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        std::iter::once(&self.interface).chain(&self.forward)
    }
}

/// A tap that is attached, with its file.
struct LiveTap<'a> {
    prepared: &'a Prepared<'a>,
    attachment: Option<Attachment>,
    ring: Ring<'a>,
    writer: StampWriter,
    warnings: Vec<String>,
}

impl<'a> LiveTap<'a> {
    fn start(prepared: &'a Prepared<'a>) -> Result<Self, TapError> {
        let Prepared { link, interface, program, .. } = prepared;
        let writer = StampWriter::create(&link.path, &link.name)
            .map_err(|source| write_error(link, source))?;
        let attachment =
            program.attach(interface, link.hook).map_err(|error| match error.kind() {
                ErrorKind::PermissionDenied => TapError::NotPermitted,
                ErrorKind::AlreadyExists => TapError::Busy { name: interface.name.clone() },
                _ => TapError::Attach { name: interface.name.clone(), reason: error.to_string() },
            })?;
        let down = prepared.interfaces().filter(|interface| !interface.up);
        let warnings =
            down.map(|interface| format!("interface down: {}", interface.name)).collect();
        Ok(Self { prepared, attachment: Some(attachment), ring: program.ring(), writer, warnings })
    }

    fn seen(&self) -> u64 {
        let counters = self.ring.counters();
        counters.head + counters.lost
    }

    /// Moves what waits in the ring to the file.
    fn drain(&mut self) -> Result<(), TapError> {
        while self.ring.drain(CHUNK, self.writer.pending()) > 0 {
            self.writer.flush().map_err(|source| write_error(self.prepared.link, source))?;
        }
        Ok(())
    }

    fn detach(&mut self) {
        let gone = self.prepared.interfaces().filter(|i| !i.exists());
        self.warnings.extend(gone.map(|interface| format!("{VANISHED}: {}", interface.name)));
        self.attachment = None;
    }

    /// Empties the ring and completes the file. No program may run any more.
    fn finish(mut self) -> Result<Report, TapError> {
        self.drain()?;
        let link = self.prepared.link;
        let failed = |source| write_error(link, source);
        let stored = self.writer.flush_all().map_err(failed)?;
        let counters = self.ring.counters();
        let seen = counters.head + counters.lost;
        let counts = TapCounts { seen, stored, lost: seen - stored, other: counters.other };
        self.writer.finish(counts).map_err(failed)?;
        let (time, runs) = self.prepared.program.run_time().unwrap_or((0, 0));
        Ok(Report {
            link: link.clone(),
            counts,
            warnings: self.warnings,
            cost_ns: (runs > 0).then(|| time as f64 / runs as f64),
        })
    }
}

fn write_error(link: &Link, source: io::Error) -> TapError {
    TapError::Write { path: link.path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rings_are_looked_at_often_and_large_ones_rarely() {
        assert_eq!(poll_period(1), Duration::from_micros(500));
        assert_eq!(poll_period(1 << 16), Duration::from_micros(8192));
        assert_eq!(poll_period(1 << 26), Duration::from_millis(100));
    }

    #[test]
    fn rings_without_or_with_too_many_records_are_refused() {
        for records in [0, MAX_RECORDS + 1] {
            let options = Options {
                links: Vec::new(),
                records,
                duration_ns: None,
                count: None,
                cpu: None,
                measure_cost: false,
            };
            let error = tap(&options, Box::new(|| Ok(()))).expect_err("refused");
            assert!(matches!(error, TapError::Records { .. }), "{error}");
        }
    }
}
