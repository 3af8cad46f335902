//! A link while it is tapped.

use std::mem::size_of;
use std::time::Duration;

use super::file::Format;
use super::program::{Attached, Interest, Keep, Moment, Program, Verdict};
use super::ring::Ring;
use super::writer::{Target, WriteError, Writer};
use super::{Cost, Forward, Link, Point, Report, TapError, Totals};
use tailtap_analysis::marks::Sample;

use crate::bpf::{BpfError, Classic};
use crate::clock::now_ns;
use crate::interface::Interface;
use crate::namespace::{Namespace, inside};

/// What is warned about when CLOCK_REALTIME jumps.
const CLOCK_SET: &str = "the system's clock was set";
/// What an interface is warned about that was deleted while it was tapped.
const VANISHED: &str = "interface vanished";

/// The user's filter for frames of Ethernet, and for packets that begin with IP.
pub(super) type Filters<'a> = (Option<&'a [Classic]>, Option<&'a [Classic]>);

/// A link whose interfaces were found, with its program loaded.
pub(super) struct Prepared<'a> {
    pub(super) link: &'a Link,
    namespace: Option<Namespace>,
    interface: Interface,
    forward: Option<Interface>,
    pub(super) program: Program,
}

impl<'a> Prepared<'a> {
    pub(super) fn new(
        link: &'a Link,
        keep: Keep,
        slots: u32,
        filters: Filters<'_>,
        interest: Interest<'_>,
    ) -> Result<Self, TapError> {
        let namespace = link.namespace.as_deref().map(Namespace::open).transpose()?;
        let (interface, forward, program) =
            inside(namespace.as_ref(), || Self::load(link, keep, slots, filters, interest))??;
        Ok(Self { link, namespace, interface, forward, program })
    }

    /// Whether its packets are frames of Ethernet.
    pub(super) fn has_ethernet(&self) -> bool {
        self.interface.ethernet
    }

    /// Finds the interfaces in the namespace that this thread is in, and loads the program for them.
    fn load(
        link: &Link,
        keep: Keep,
        slots: u32,
        filters: Filters<'_>,
        interest: Interest<'_>,
    ) -> Result<(Interface, Option<Interface>, Program), TapError> {
        let (interface, forward) = match link.point.forward() {
            Forward::To(name) => {
                (Interface::find_up(&link.interface)?, Some(Interface::find_up(name)?))
            }
            Forward::Pass | Forward::Drop => (Interface::find_any_up(&link.interface)?, None),
        };
        let ethernet = interface.ethernet;
        let name = || interface.name.clone();
        if !ethernet && (matches!(keep, Keep::Field(_)) || interest.id.is_some()) {
            return Err(TapError::NoFrame { interface: name() });
        }
        let filter = match filters {
            (filter, _) if ethernet => filter,
            (Some(_), None) => return Err(TapError::FilterOfFrames { interface: name() }),
            (_, filter) => filter,
        };
        let interest = Interest { filter, ..interest };
        let verdict = match (link.point.forward(), &forward) {
            (_, Some(interface)) => Verdict::Redirect(interface.index),
            (Forward::Drop, _) => Verdict::Drop,
            _ => Verdict::Pass,
        };
        let moment = match &link.point {
            Point::Received => Moment::Receipt,
            Point::HandedOver(_) => Moment::AnyArrival(&interface),
            point if point.stamps_arrival() => Moment::Arrival(&interface),
            _ => Moment::Now,
        };
        let program =
            Program::load(verdict, keep, slots, moment, interest, ethernet).map_err(|error| {
                match error {
                    BpfError::Memory { .. } => TapError::Memory {
                        records: slots.into(),
                        size: keep.slot_words() * size_of::<u64>(),
                    },
                    other => other.into(),
                }
            })?;
        Ok((interface, forward, program))
    }

    fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        std::iter::once(&self.interface).chain(&self.forward)
    }
}

/// A tap that is attached, with its file.
pub(super) struct LiveTap<'a> {
    prepared: &'a Prepared<'a>,
    attachment: Option<Attached>,
    /// Where the program runs.
    hook: &'static str,
    pub(super) ring: Ring<'a>,
    /// Records moved at once.
    chunk: u64,
    writer: Writer,
    /// The sample that is taken.
    level: u8,
    /// What the interface had dropped at the start, and until the tap was taken away.
    dropped: (Option<u64>, Option<u64>),
    pub(super) failed: Option<WriteError>,
    warnings: Vec<String>,
}

impl<'a> LiveTap<'a> {
    pub(super) fn start(
        prepared: &'a Prepared<'a>,
        target: &Target,
        format: Format,
        chunk: u64,
        ahead: u64,
    ) -> Result<Self, TapError> {
        let Prepared { link, namespace, interface, program, .. } = prepared;
        let ring = program.ring();
        ring.set_ahead(ahead);
        let level = target.sample.level;
        ring.set_level(level);
        // What stands before is where the file is.
        let name = link.name.rsplit('/').next().unwrap_or_default();
        let (path, name) = (link.path.clone(), name.to_owned());
        let writer = Writer::create(Target { path, link: name, format, ..target.clone() });
        let writer = writer.map_err(TapError::Create)?;
        let (attachment, dropped) = inside(namespace.as_ref(), || {
            program
                .attach(interface, link.point.hook())
                .map(|attachment| (attachment, interface.dropped()))
        })??;
        Ok(Self {
            prepared,
            hook: attachment.place(),
            dropped: (dropped, None),
            attachment: Some(attachment),
            ring,
            chunk,
            writer,
            level,
            failed: None,
            warnings: Vec::new(),
        })
    }

    /// The kernel's stamps are of CLOCK_REALTIME, which somebody has put on by the difference.
    pub(super) fn clock_was_set(&mut self, before: u64, now: u64) {
        self.ring.set_ahead(now);
        if self.prepared.link.point.stamps_arrival() {
            let by = Duration::from_nanos(now.abs_diff(before));
            let message =
                format!("{CLOCK_SET} by {by:?}: stamps of the moment before may be wrong");
            self.warnings.push(message);
        }
    }

    pub(super) fn seen(&self) -> u64 {
        let counters = self.ring.counters();
        counters.head + counters.lost
    }

    /// Everything that was counted so far.
    pub(super) fn totals(&self) -> Totals<'a> {
        let counters = self.ring.counters();
        let unkeyed = self.writer.unkeyed();
        Totals {
            name: &self.prepared.link.name,
            seen: (counters.head + counters.lost).saturating_sub(unkeyed),
            stored: self.writer.stored(),
            lost: counters.lost,
            other: counters.other + unkeyed,
            late: counters.late,
            filtered: counters.filtered,
            unsampled: counters.unsampled,
            sample: 1 << self.level,
        }
    }

    /// Time that the program took, in nanoseconds, and how often it ran, while statistics were on.
    pub(super) fn run_time(&self) -> (u64, u64) {
        self.prepared.program.run_time().unwrap_or_default()
    }

    /// Whether its packets were through the device.
    pub(super) fn is_behind(&self) -> bool {
        self.prepared.link.is_behind()
    }

    /// Whether its packets are stamped by the kernel as they are handed over.
    pub(super) fn stamps_arrival(&self) -> bool {
        self.prepared.link.point.stamps_arrival()
    }

    /// Has the program stamp one packet of `2^level`.
    pub(super) fn set_level(&mut self, level: u8) {
        self.ring.set_level(level);
        self.level = level;
    }

    /// Says in the file what sample is taken before the device from now on.
    pub(super) fn say_sample(&mut self, sample: Sample) {
        if self.failed.is_none() {
            self.failed = self.writer.change_sample(sample).err();
        }
    }

    /// Whether there is room to say it again.
    pub(super) fn takes_change(&self) -> bool {
        self.writer.takes_change()
    }

    /// Moves what waits in the ring now to the file; not what comes meanwhile, so that other links
    /// get their turn and signals are heard however fast packets come.
    pub(super) fn drain(&mut self) {
        if self.failed.is_none() {
            self.failed = self.move_records().err();
        }
    }

    fn move_records(&mut self) -> Result<(), WriteError> {
        let now = now_ns();
        let mut left = self.ring.waiting();
        loop {
            let writer = &mut self.writer;
            let limit = left.min(self.chunk);
            let moved = self.ring.drain(limit, |record, rest| writer.push(record, rest));
            left -= moved;
            let is_last = left == 0 || moved < limit;
            self.writer.flush(now, is_last, self.ring.counters())?;
            if is_last {
                return Ok(());
            }
        }
    }

    pub(super) fn detach(&mut self) {
        let prepared = self.prepared;
        let left = inside(prepared.namespace.as_ref(), || {
            let gone = prepared.interfaces().filter(|i| !i.exists());
            self.warnings.extend(gone.map(|interface| format!("{VANISHED}: {}", interface.name)));
            self.dropped.1 = prepared.interface.dropped();
            let before = prepared.program.behind(&prepared.interface, prepared.link.point.hook());
            if !before.is_empty() {
                let before = before.join(" and ");
                self.warnings
                    .push(format!("{before} came before the tap: what that drops is not stamped"));
            }
            self.attachment = None;
        });
        self.warnings.extend(left.err().map(|error| error.to_string()));
    }

    /// Empties the ring and completes the file. No program may run any more.
    pub(super) fn finish(
        mut self,
        compared: Option<(f64, f64)>,
        (samples, exceeded): (&[Sample], Option<String>),
    ) -> Result<Report, TapError> {
        self.drain();
        let counters = self.ring.counters();
        let strange = self.writer.strange();
        let finished = match self.failed {
            None => self.writer.finish(counters),
            Some(error) => Err((error, self.writer)),
        };
        let (counts, files) = match finished {
            Ok(finished) => finished,
            Err((error, writer)) => {
                // The file that could not take everything still says exactly what it lacks.
                let stored = writer.stored();
                let seen = counters.head + counters.lost;
                writer.abandon(counters);
                let kept = format!("{stored} of {seen} packets are stored");
                return Err(TapError::Write { error, kept });
            }
        };
        let mut warnings = self.warnings;
        warnings.extend(exceeded);
        if strange > 0 {
            warnings.push(format!(
                "{strange} packets were chosen for the sample by headers that are not those of the \
                 innermost packet, which the kernel's side did not reach: what stands before these on \
                 one side of the device alone makes packets look lost"
            ));
        }
        if counters.taken < counters.handed {
            warnings.push(format!(
                "{} of {} XDP frames vanished between being handed over and being received: frames \
                 behind them have the stamps of earlier ones",
                counters.handed - counters.taken,
                counters.handed
            ));
        }
        let (time, runs) = self.prepared.program.run_time().unwrap_or((0, 0));
        let tap_ns = time as f64 / runs.max(1) as f64;
        let cost = compared.map(|(floor_ns, clock_ns)| Cost { tap_ns, floor_ns, clock_ns });
        Ok(Report {
            link: self.prepared.link.clone(),
            files,
            counts,
            hook: self.hook,
            samples: samples.to_vec(),
            late: counters.late,
            dropped: match self.dropped {
                (Some(before), Some(after)) => after.saturating_sub(before),
                _ => 0,
            },
            warnings,
            cost: cost.filter(|_| runs > 0),
        })
    }
}
