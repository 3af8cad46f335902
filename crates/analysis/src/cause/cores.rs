//! What each core did: traces laid out, their parts side by side.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use super::Owners;
use super::egress::Leaving;
use super::lane::Lane;
use super::layout::Server;
use super::timeline::{Builder, Timeline};
use crate::capture::CaptureError;
use crate::trace::{Part, Trace, TraceError};

/// What each of some cores did.
#[derive(Clone, Debug)]
pub struct Cores {
    /// By core.
    pub timelines: BTreeMap<u16, Timeline>,
    /// Who is in them.
    pub owners: Owners,
}

/// A file that the layout needs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The stamps after the device.
    #[error(transparent)]
    Stamps(#[from] CaptureError),
}

/// Where softirqs serve packets.
#[derive(Clone, Copy, Debug)]
pub struct Serving<'a> {
    /// The vector that does.
    pub vector: u32,
    /// The cores on which it does; on all others, threads serve.
    pub softirq: &'a [u16],
    /// The cores on which threads serve, alone or as well.
    pub threads: &'a [u16],
    /// The stamp files of the tap points behind what serves; empty where none is of the trace's clock.
    pub leaving: &'a [PathBuf],
}

/// What a core did during a part of a trace, and who it met.
type Stretches = (Builder, Owners);

/// A trace and what else its layout needs.
struct Plan<'a> {
    trace: &'a Trace,
    ended_ns: u64,
    /// None where no softirq serves.
    serving: Option<Serving<'a>>,
}

impl Cores {
    /// Lays out a trace that ended at a time. Softirqs that could serve become those of others if no
    /// packet of the stamp files left their core meanwhile; with one core, all packets are its.
    ///
    /// As many threads as there are CPUs lay out one part after the other; this one strings them
    /// together.
    ///
    /// # Panics
    /// If a thread cannot be started.
    pub fn lay_out(
        trace: &Trace,
        ended_ns: u64,
        serving: Option<Serving<'_>>,
    ) -> Result<Self, LayoutError> {
        let parts = trace.parts();
        let plan = Plan { trace, ended_ns, serving };
        let mut found: Vec<(Builder, Owners)> = Vec::new();
        found.resize_with(trace.cores().len(), Default::default);
        let workers = thread::available_parallelism().map_or(1, usize::from).min(parts.len());
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let (done, results) = mpsc::channel();
            for _ in 0..workers {
                let (done, plan, next) = (done.clone(), &plan, &next);
                scope.spawn(move || {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(part) = parts.get(place) else { return };
                        // Nobody takes more after an error.
                        if done.send((place, plan.lay_out(part))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(done);
            let mut waiting = BTreeMap::new();
            let mut strung = 0;
            for (place, part) in results {
                waiting.insert(place, part?);
                while let Some(part) = waiting.remove(&strung) {
                    for ((builder, owners), (later, met)) in found.iter_mut().zip(part) {
                        builder.append(later, &numbers(&met, owners));
                    }
                    strung += 1;
                }
            }
            Ok::<_, LayoutError>(())
        })?;
        let mut owners = Owners::default();
        let mut timelines = BTreeMap::new();
        for (&cpu, (builder, met)) in trace.cores().iter().zip(found) {
            let mut timeline = builder.finish();
            timeline.renumber(&numbers(&met, &mut owners));
            timelines.insert(cpu, timeline);
        }
        Ok(Self { timelines, owners })
    }
}

/// The numbers that owners have among all.
fn numbers(met: &Owners, all: &mut Owners) -> Vec<u32> {
    met.list().iter().map(|&owner| all.number(owner)).collect()
}

impl Plan<'_> {
    /// What serves on a core; `only` is the core whose packets count.
    fn server(&self, cpu: u16, only: Option<u16>, from: u64) -> Result<Server, LayoutError> {
        let Some(Serving { vector, softirq, threads, leaving }) = self.serving else {
            return Ok(Server::Threads { foreign: None });
        };
        if !softirq.contains(&cpu) {
            return Ok(Server::Threads { foreign: Some(vector) });
        }
        let open = |path: &PathBuf| Leaving::open(path, only, from);
        let leaving = leaving.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Server::Softirq { vector, leaving, alone: !threads.contains(&cpu) })
    }

    /// Lays out a part, core by core.
    fn lay_out(&self, part: &Part) -> Result<Vec<Stretches>, LayoutError> {
        let cores = self.trace.cores();
        let mut laid = Vec::with_capacity(cores.len());
        for (place, &cpu) in cores.iter().enumerate() {
            let from_ns = part.from.get(place).map(|cut| cut.at_ns);
            let only = (cores.len() > 1).then_some(cpu);
            let server = self.server(cpu, only, from_ns.unwrap_or(0))?;
            laid.push(Lane::new(self.ended_ns, from_ns, server));
        }
        self.trace.read(part, |place, records, ahead| {
            Ok::<_, LayoutError>(laid[place].take(records, &ahead)?)
        })?;
        let ended = laid.into_iter().map(Lane::finish);
        Ok(ended.collect())
    }
}
