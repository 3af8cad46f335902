//! Taps: stamps, or the first bytes, of every packet that passes a link, into files of its own.
//!
//! A packet's way: the eBPF program ([`program`]) on a link stamps it, some of them with the
//! kernel's stamp of its arrival ([`arrival`]); the record goes through a ring in shared memory
//! ([`ring`]) to the thread that runs [`tap`], which sorts the records of each link and writes them
//! ([`live`], [`writer`], [`file`](mod@file)). [`hardware`] writes such files from the stamps of
//! network cards.

mod arrival;
mod asked;
mod budget;
mod error;
pub mod file;
pub mod hardware;
mod key;
mod live;
mod meter;
mod program;
mod ring;
mod sampler;
pub mod writer;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use tailtap_analysis::key::{KeyKind, Sampling};
use tailtap_analysis::marks::{MarkCounts, Sample};
use tailtap_analysis::stamps::Clock;

use crate::OnReady;
use crate::bpf::enable_statistics;
use crate::clock::{ClockSet, Deadline, now_ns, realtime_ahead_ns};
use crate::cpu::{pin, synchronize_rcu};
use crate::privileges::{self, Work};
use crate::signals::StopSignals;

use arrival::ask_for_stamps;
use asked::{MAX_RECORDS, format, keep, sampling, slots};
use file::Format;
use live::{LiveTap, Prepared};
use meter::Meter;
use program::Interest;
use sampler::Sampler;
use writer::Target;

pub use crate::bpf::Hook;
pub use asked::{Forward, Kind, Link, MAX_SNAP, Options, Point};
pub use error::TapError;
pub use key::TapKey;
pub use meter::{Measured, Totals};
#[cfg(test)]
pub(crate) use program::answers as program_answers;

/// Bytes of a tap's ring unless told otherwise, before it is rounded up.
pub const DEFAULT_ROOM: u64 = 64 << 20;
/// Bytes moved from ring to file at once.
const CHUNK: u64 = 1 << 20;
/// How often it is looked whether links have seen enough packets.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is looked at what the taps cost that have a budget.
const BUDGET_NS: u64 = 1_000_000_000;
const MEASURING: &str = "measure eBPF programs";
/// How soon a ring is looked at again whose records are not complete yet.
const AGAIN: Duration = Duration::from_millis(1);

/// Told now and then what was counted and measured.
pub type OnTell<'a> = dyn FnMut(&Measured) -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// What a tap did on one link.
#[derive(Clone, Debug)]
pub struct Report {
    /// The link.
    pub link: Link,
    /// Its files, at least one.
    pub files: Vec<PathBuf>,
    /// The counts, as in the file; of several, the sums.
    pub counts: MarkCounts,
    /// Where the program ran.
    pub hook: &'static str,
    /// The samples that were taken before the device, with the times of CLOCK_MONOTONIC.
    pub samples: Vec<Sample>,
    /// Packets that were stamped on receipt, as the kernel had not stamped them when they were
    /// handed over: later than they should be, by an unknown time.
    pub late: u64,
    /// Packets that the kernel dropped between handing over and stamping, those without an id
    /// included: its queue was full.
    pub dropped: u64,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// What the eBPF program cost, if asked for.
    pub cost: Option<Cost>,
}

/// What the kernel says that eBPF programs cost, in nanoseconds for a packet.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The tap's program. This includes `floor_ns`.
    pub tap_ns: f64,
    /// A program that does nothing: the time that the kernel takes to ask its clock.
    pub floor_ns: f64,
    /// A program that reads the clock of the stamps. This includes `floor_ns`, too.
    pub clock_ns: f64,
}

/// Taps the links until SIGINT, SIGTERM, the duration or the count, and reports link by link, in
/// the order given. Pins the calling thread if asked to, and gives its privileges up: call it from a
/// thread of its own.
pub fn tap(
    options: &Options,
    on_ready: Box<OnReady<'_>>,
    on_tell: &mut OnTell<'_>,
) -> Result<Vec<Report>, TapError> {
    let keep = keep(options)?;
    let sampling = options.links.iter().map(|link| sampling(options, link));
    let sampling: Vec<Option<Sampling>> = sampling.collect::<Result<_, _>>()?;
    let size = keep.slot_words() * size_of::<u64>();
    let slots = slots(options, DEFAULT_ROOM / size as u64)?;
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    let system = |what| move |source| TapError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let statistics =
        options.measure_cost.then(enable_statistics).transpose().map_err(system(MEASURING))?;

    let stamps = options
        .links
        .iter()
        .any(|link| link.point.stamps_arrival())
        .then(ask_for_stamps)
        .transpose();
    let _stamps = stamps.map_err(system("ask for the kernel's stamps"))?;
    let prepared: Vec<Prepared> = options
        .links
        .iter()
        .enumerate()
        .map(|(at, link)| {
            let id = match link.hash {
                Some(KeyKind::Field(field)) => TapKey::of_field(field),
                _ => None,
            };
            let filters = (options.filter.as_deref(), options.filter_of_ip.as_deref());
            let interest = Interest { filter: None, sampling: sampling[at], id };
            Prepared::new(link, keep, slots[at] as u32, filters, interest)
        })
        .collect::<Result<_, _>>()?;
    let clock_set = ClockSet::watch().map_err(system("watch the clock"))?;
    let mut ahead = realtime_ahead_ns();
    let first = Sample { since_ns: now_ns(), level: options.level };
    let target = Target {
        path: PathBuf::new(),
        link: String::new(),
        format: Format::Stamps,
        clock: options.clock,
        // The same for all links, so that their times can be compared to the nanosecond.
        shift: if options.clock == Clock::Realtime { ahead } else { 0 },
        rotation: options.rotation,
        sample: first,
    };
    // All files and programs are ready before the first link is touched.
    let mut taps: Vec<LiveTap<'_>> = prepared
        .iter()
        .zip(&sampling)
        .map(|(prepared, &sampling)| {
            let format = format(options, prepared, sampling);
            LiveTap::start(prepared, &target, format, (CHUNK / size as u64).max(1), ahead)
        })
        .collect::<Result<_, _>>()?;
    let mut sampler = Sampler::new(options, first);
    let period = options.budget.map(|_| BUDGET_NS).into_iter().chain(options.tell_ns).min();
    let mut meter = match (period, prepared.first()) {
        (Some(period), Some(any)) => {
            Some(Meter::new(period, &any.program).map_err(system(MEASURING))?)
        }
        _ => None,
    };
    on_ready().map_err(TapError::Ready)?;
    let elsewhere = options.links.iter().any(|link| link.namespace.is_some());
    privileges::keep(Work::Tap { elsewhere, measured: meter.is_some() })
        .map_err(system("give up root's privileges"))?;

    let begin = now_ns();
    if let Some(meter) = &mut meter {
        meter.begin(begin, &taps);
    }
    let end = options.duration_ns.map_or(u64::MAX, |ns| begin.saturating_add(ns));
    let mut flush = Deadline::new(options.flush_ns, begin);
    let mut tell = Deadline::new(options.tell_ns, begin);
    let bells = prepared.iter().map(|prepared| prepared.program.bell.fd());
    let watched: Vec<_> = bells.chain([clock_set.fd()]).collect();
    while !signals.requested() {
        let now = now_ns();
        let enough = |count| taps.iter().all(|tap| tap.seen() >= count);
        if now >= end || options.count.is_some_and(enough) {
            break;
        }
        // Nobody wakes a CPU that may be the generator's without need: it sleeps until it is told.
        let measured = meter.as_ref().map_or(u64::MAX, Meter::due_ns);
        let due = end.min(flush.due()).min(measured).min(sampler.due_ns());
        let mut left = Duration::from_nanos(due.saturating_sub(now));
        if options.count.is_some() {
            left = left.min(LOOK);
        }
        if taps.iter().any(|tap| tap.ring.should_drain()) {
            left = left.min(AGAIN);
        }
        signals.wait_for_any(&watched, left);
        prepared.iter().for_each(|prepared| prepared.program.bell.hear());
        clock_set.hear();
        let now_ahead = realtime_ahead_ns();
        if now_ahead != ahead {
            for tap in &mut taps {
                tap.clock_was_set(ahead, now_ahead);
            }
            ahead = now_ahead;
        }
        let all = flush.is_due();
        for tap in &mut taps {
            if all || tap.ring.should_drain() {
                tap.drain();
            }
        }
        sampler.catch_up(&mut taps, now_ns());
        let measured = meter.as_mut().map(|meter| meter.step(now_ns(), &taps)).transpose();
        if let Some(measured) = measured.map_err(system(MEASURING))?.flatten() {
            if tell.is_due_at(measured.time_ns) {
                on_tell(&measured).map_err(TapError::Ready)?;
            }
            sampler.decide(&mut taps, &measured);
        }
        if taps.iter().any(|tap| tap.failed.is_some()) {
            break;
        }
    }

    for tap in &mut taps {
        tap.detach();
    }
    synchronize_rcu();
    let compared = match (&statistics, prepared.first()) {
        // What cannot be measured is taken for nothing, so that the taps look no cheaper.
        (Some(_), Some(first)) => {
            Some((first.program.floor().unwrap_or(0.0), first.program.clock().unwrap_or(0.0)))
        }
        _ => None,
    };
    drop(statistics);
    // Every file is completed, whatever becomes of the others.
    let reports: Vec<_> =
        taps.into_iter().map(|tap| tap.finish(compared, sampler.told())).collect();
    reports.into_iter().collect()
}
