//! What taps count and cost while they run.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{ClockId, clock_gettime};
use serde::{Serialize, Serializer};

use super::live::LiveTap;
use super::program::Program;
use crate::bpf::enable_statistics;
use crate::privileges::{MEASURE, raised};

/// The kernel times eBPF programs for this long at a time: each run of each costs more meanwhile.
const MOMENT_NS: u64 = 20_000_000;

/// What a link's tap has counted so far.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Totals<'a> {
    /// The link.
    #[serde(skip)]
    pub name: &'a str,
    /// Packets with a key or an id that the tap saw.
    pub seen: u64,
    /// Of these, in the file.
    pub stored: u64,
    /// Of these, lost for lack of room.
    pub lost: u64,
    /// Packets without a key or an id.
    pub other: u64,
    /// Packets that were stamped on receipt.
    pub late: u64,
    /// Packets that the filter left out.
    pub filtered: u64,
    /// Packets that were not in the sample.
    pub unsampled: u64,
    /// One packet of so many is stamped.
    pub sample: u64,
}

impl Totals<'_> {
    /// All packets that passed.
    fn passed(&self) -> u64 {
        self.seen + self.other + self.filtered + self.unsampled
    }
}

/// What a link's tap counted and cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LinkMeasured<'a> {
    /// What it has counted so far.
    #[serde(flatten)]
    pub totals: Totals<'a>,
    /// Packets that passed, a second.
    pub rate: f64,
    /// What each of them cost, in nanoseconds; none where no packet passed.
    pub ns: Option<f64>,
    /// The share of one core's time.
    pub share: f64,
}

/// What taps counted and cost since the last time.
#[derive(Clone, Debug, Serialize)]
pub struct Measured<'a> {
    /// When, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Of each link, by its name.
    #[serde(serialize_with = "by_name")]
    pub links: Vec<LinkMeasured<'a>>,
    /// The share of one core's time of all links together.
    pub share: f64,
    /// The share that the thread took which writes the files, of the core that it runs on.
    pub writer_share: f64,
}

fn by_name<S: Serializer>(links: &[LinkMeasured<'_>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(links.iter().map(|link| (link.totals.name, link)))
}

/// Measures now and then.
pub(super) struct Meter {
    period_ns: u64,
    due_ns: u64,
    /// While the kernel times its programs: that it does, and what it had timed of each tap before.
    timing: Option<(OwnedFd, Vec<(u64, u64)>)>,
    /// When it was measured last, how many packets had passed each link, and the thread's time.
    last: (u64, Vec<u64>, u64),
    /// What the kernel's own stamp of a packet costs that is handed over.
    stamp_ns: f64,
}

impl Meter {
    /// Measures every `period_ns`, once it has begun. `program` is any of the taps'.
    ///
    /// # Errors
    /// The kernel does not time its programs.
    pub(super) fn new(period_ns: u64, program: &Program) -> io::Result<Self> {
        let statistics = enable_statistics()?;
        let stamp_ns = (program.clock()? - program.floor()?).max(0.0);
        drop(statistics);
        let period_ns = period_ns.max(2 * MOMENT_NS);
        Ok(Self { period_ns, due_ns: u64::MAX, timing: None, last: Default::default(), stamp_ns })
    }

    /// Begins at a time.
    pub(super) fn begin(&mut self, now: u64, taps: &[LiveTap<'_>]) {
        let passed = taps.iter().map(|tap| tap.totals().passed()).collect();
        self.last = (now, passed, thread_ns());
        self.due_ns = now.saturating_add(self.period_ns - MOMENT_NS);
    }

    /// When [`Self::step`] has something to do.
    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// What was measured, if it is time.
    pub(super) fn step<'a>(
        &mut self,
        now: u64,
        taps: &[LiveTap<'a>],
    ) -> io::Result<Option<Measured<'a>>> {
        if now < self.due_ns {
            return Ok(None);
        }
        let Some((statistics, before)) = self.timing.take() else {
            let statistics = raised(MEASURE, enable_statistics)??;
            self.timing = Some((statistics, taps.iter().map(LiveTap::run_time).collect()));
            self.due_ns = now + MOMENT_NS;
            return Ok(None);
        };
        let after: Vec<_> = taps.iter().map(LiveTap::run_time).collect();
        drop(statistics);
        let totals: Vec<_> = taps.iter().map(LiveTap::totals).collect();
        let passed: Vec<_> = totals.iter().map(Totals::passed).collect();
        let this = (now, passed, thread_ns());
        let (then, passed_then, thread_then) = std::mem::replace(&mut self.last, this);
        self.due_ns = now + self.period_ns - MOMENT_NS;
        let elapsed = now.saturating_sub(then).max(1) as f64;
        let links: Vec<_> = (0..taps.len())
            .map(|place| {
                let (time, runs) =
                    (after[place].0 - before[place].0, after[place].1 - before[place].1);
                let packets = self.last.1[place].saturating_sub(passed_then[place]);
                let stamp_ns = if taps[place].stamps_arrival() { self.stamp_ns } else { 0.0 };
                let ns = (runs > 0).then(|| time as f64 / runs as f64 + stamp_ns);
                LinkMeasured {
                    totals: totals[place],
                    rate: packets as f64 * 1e9 / elapsed,
                    ns,
                    share: packets as f64 * ns.unwrap_or_default() / elapsed,
                }
            })
            .collect();
        Ok(Some(Measured {
            time_ns: now,
            share: links.iter().map(|link| link.share).sum(),
            links,
            writer_share: self.last.2.saturating_sub(thread_then) as f64 / elapsed,
        }))
    }
}

/// The time that this thread has run.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
