//! What each core did: traces laid out, their parts side by side.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use super::Owners;
use super::egress::Leaving;
use super::layout::Arranger;
use super::sweep::Sweep;
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

/// What a core did during a part of a trace, and who it met.
type Stretches = (Builder, Owners);

/// A trace and what else its layout needs.
struct Plan<'a> {
    trace: &'a Trace,
    ended_ns: u64,
    /// The softirq that serves, and the stamps after the device.
    serving: Option<(u32, &'a Path)>,
}

impl Cores {
    /// Lays out a trace that ended at a time. Softirqs of the vector `serving` during which no packet
    /// of the stamp file left their core become those of others; with one core, all packets are its.
    ///
    /// As many threads as there are CPUs lay out one part after the other; this one strings them
    /// together.
    ///
    /// # Panics
    /// If a thread cannot be started.
    pub fn lay_out(
        trace: &Trace,
        ended_ns: u64,
        serving: Option<(u32, &Path)>,
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
    /// Lays out a part, core by core.
    fn lay_out(&self, part: &Part) -> Result<Vec<Stretches>, LayoutError> {
        let cores = self.trace.cores();
        let mut laid = Vec::with_capacity(cores.len());
        for (place, &cpu) in cores.iter().enumerate() {
            let from_ns = part.from.get(place).map(|cut| cut.at_ns);
            let only = (cores.len() > 1).then_some(cpu);
            let serving = match self.serving {
                Some((vector, path)) => {
                    Some((vector, Leaving::open(path, only, from_ns.unwrap_or(0))?))
                }
                None => None,
            };
            let mut arranger = Arranger::new(self.ended_ns, from_ns, serving);
            let sweep = Sweep::new(arranger.untold());
            laid.push((arranger, sweep));
        }
        self.trace.read(part, |place, records, ahead| {
            let (arranger, sweep) = &mut laid[place];
            sweep.take(arranger.take(records, &ahead)?);
            Ok::<_, LayoutError>(())
        })?;
        let ended = laid.into_iter().map(|(arranger, mut sweep)| {
            sweep.take(arranger.rest());
            (sweep.finish(), arranger.into_owners())
        });
        Ok(ended.collect())
    }
}
