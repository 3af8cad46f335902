//! What each core did: traces laid out, the cores side by side.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::thread;

use super::Owners;
use super::belt::belt;
use super::egress::Leaving;
use super::layout::{Arranger, Interval};
use super::sweep::Sweep;
use super::timeline::Timeline;
use crate::capture::CaptureError;
use crate::trace::{Ahead, Record, Trace, TraceError};

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

impl Cores {
    /// Lays out a trace that ended at a time. Softirqs of the vector `serving` during which no packet
    /// of the stamp file left their core become those of others; with one core, all packets are its.
    ///
    /// One thread reads; of each core one thread arranges its records, and another one sweeps over
    /// them.
    ///
    /// # Panics
    /// If a thread cannot be started.
    pub fn lay_out(
        trace: &Trace,
        ended_ns: u64,
        serving: Option<(u32, &Path)>,
    ) -> Result<Self, LayoutError> {
        let only = trace.cores().len() == 1;
        let mut arrangers = Vec::new();
        for &cpu in trace.cores() {
            let leaving = |(vector, path)| {
                Leaving::open(path, (!only).then_some(cpu)).map(|leaving| (vector, leaving))
            };
            arrangers.push(Arranger::new(ended_ns, serving.map(leaving).transpose()?));
        }
        let found: Vec<_> = thread::scope(|scope| {
            let (feeds, threads): (Vec<_>, Vec<_>) = arrangers
                .into_iter()
                .map(|mut arranger| {
                    let (feed, blocks) = belt::<Record, Ahead>();
                    let (arranged, intervals) = belt::<Interval, ()>();
                    let arranging = scope.spawn(move || {
                        let mut hand_over = |records: &[Record], ahead| {
                            let mut ready = arranged.empty();
                            arranger.take(records, &ahead, &mut ready)?;
                            arranged.send(ready, ());
                            Ok::<_, CaptureError>(())
                        };
                        blocks.each(&mut hand_over)?;
                        hand_over(&[], Ahead::NONE)?;
                        Ok::<_, CaptureError>(arranger.into_owners())
                    });
                    let sweeping = scope.spawn(move || {
                        let mut sweep = Sweep::default();
                        let swept = intervals.each(|ready, ()| {
                            sweep.take(ready);
                            Ok::<_, Infallible>(())
                        });
                        swept.expect("a sweep has no errors");
                        sweep.finish()
                    });
                    (feed, (arranging, sweeping))
                })
                .unzip();
            trace.read(|place, records, ahead| {
                let full = std::mem::replace(records, feeds[place].empty());
                // Nobody takes more when the stamps cannot be read.
                feeds[place].send(full, ahead)
            })?;
            drop(feeds);
            let ended = threads.into_iter().map(|(arranging, sweeping)| {
                let timeline = sweeping.join().expect("a sweep does not panic");
                Ok((arranging.join().expect("arranging does not panic")?, timeline))
            });
            ended.collect::<Result<_, LayoutError>>()
        })?;
        let mut owners = Owners::default();
        let mut timelines = BTreeMap::new();
        for (&cpu, (met, mut timeline)) in trace.cores().iter().zip(found) {
            let numbers: Vec<u32> = met.list().iter().map(|&owner| owners.number(owner)).collect();
            timeline.renumber(&numbers);
            timelines.insert(cpu, timeline);
        }
        Ok(Self { timelines, owners })
    }
}
