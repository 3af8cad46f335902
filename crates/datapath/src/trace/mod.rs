//! The tracer: what the kernel did on chosen cores, into one file.
//!
//! A record's way: an eBPF program ([`program`]) stores it in its core's ring in shared memory
//! ([`core`], [`crate::ring`]); the thread that runs [`trace`] takes it out, puts the records of each
//! core into the order of their ends, and writes them ([`record`], [`writer`]). What they name by a
//! number has its name looked up at the end ([`kernel`]).

mod core;
mod error;
mod kernel;
mod program;
mod record;
mod tasks;
mod thinning;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::OnReady;
use crate::bpf::enable_statistics;
use crate::clock::{Deadline, now_ns};
use crate::cpu::{is_online, pin, synchronize_rcu};
use crate::file::numbered;
use crate::privileges::{self, MEASURE, Work, raised};
use crate::ring::Ring;
use crate::signals::StopSignals;

use program::{MAX_CPUS, Program};
use record::{Kind, Record};
use tasks::Tasks;
use thinning::{Step, Thinning};
use writer::{HOLD_NS, Named, Writer};

pub use error::TraceError;
pub use program::lacking;
pub use record::Kind as RecordKind;
pub use tasks::Task;

/// Records of a core's ring unless told otherwise: 32 MiB.
pub const DEFAULT_RECORDS: u64 = 1 << 20;
/// The largest ring: 2 GiB for each core.
const MAX_RECORDS: u64 = 1 << 26;
/// The longest stretch of which one record says that nothing was traced.
const UNSEEN_NS: u64 = 1_000_000_000;
/// So many times what programs cost is read: the shortest reading counts.
const TRIES: usize = 3;
/// How soon a ring is looked at again whose records are not complete yet.
const AGAIN: Duration = Duration::from_millis(1);

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// What is needed to name the context that had the core.
    Thin,
    /// All.
    Full,
}

impl Mode {
    const ALL: [Self; 2] = [Self::Thin, Self::Full];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Thin => "thin",
            Self::Full => "full",
        }
    }
}

/// A word that is no mode.
#[derive(Debug, thiserror::Error)]
#[error("there is no mode {0:?}: give --mode thin or full")]
pub struct NoMode(String);

impl FromStr for Mode {
    type Err = NoMode;

    fn from_str(text: &str) -> Result<Self, NoMode> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| NoMode(text.into()))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to trace and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file.
    pub path: PathBuf,
    /// The CPUs; each once.
    pub cpus: Vec<usize>,
    /// Further CPUs, which tell those of packets: only what holds them for long is recorded.
    pub senders: Vec<usize>,
    /// What is recorded.
    pub mode: Mode,
    /// Interrupts and softirqs below this are added up.
    pub floor_ns: u32,
    /// Tasks that serve packets: their waking is recorded.
    pub served: Vec<u32>,
    /// Network namespaces (inodes) whose packets are served by softirqs: what a softirq spends on
    /// those of others is recorded. Nothing is when there are none.
    pub networks: Vec<u32>,
    /// Packets come to these CPUs by function calls of others alone, as receive packet steering has
    /// them, and no driver passes them on itself: a thin trace then leaves out what that makes needless.
    pub steered: bool,
    /// Room in each core's ring, rounded up to a power of two; `None` for [`DEFAULT_RECORDS`].
    pub records: Option<u64>,
    /// Go on to the next file after this long: a row of numbered files, each a trace.
    pub rotate_ns: Option<u64>,
    /// Write at least this often; `None` to write nothing while little of the room is used.
    pub flush_ns: Option<u64>,
    /// End after this long.
    pub duration_ns: Option<u64>,
    /// Where the thread that writes runs.
    pub cpu: Option<usize>,
    /// The share of one core's time that the programs may take: where they need more, they are taken away
    /// for a part of the time.
    pub budget: Option<f64>,
    /// Measure what the programs cost.
    pub measure_cost: bool,
}

impl Options {
    /// Whether what usual packets cause is added up: where softirqs alone serve, and what they spend on
    /// packets of others is known.
    fn adds_up_usual(&self) -> bool {
        self.mode == Mode::Thin && self.served.is_empty() && !self.networks.is_empty()
    }
}

/// What a trace has.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The file.
    #[serde(skip)]
    pub path: PathBuf,
    /// When all programs were attached; of one file in a row, when it began.
    pub started_ns: u64,
    /// When the first one was taken away; what ended before, and after the begin, is in the file.
    pub ended_ns: u64,
    /// So long of it nothing was traced, to keep the budget.
    pub paused_ns: u64,
    /// The share of one core's time that the programs took so far, pauses included; none where nobody
    /// measured it.
    pub share: Option<f64>,
    /// How often records were written before the end, into whichever file.
    pub writes: u64,
    /// Records in the file, by kind.
    pub kinds: BTreeMap<RecordKind, u64>,
    /// Of each CPU, the usual passes that have no records of their own, and how long in ns half of all
    /// passes took at most; empty where none are left out.
    pub passes: BTreeMap<usize, (u64, u64)>,
    /// Records that found no room, by CPU.
    pub lost: BTreeMap<usize, u64>,
    /// Tracepoints that were not followed, and why.
    pub missing: Vec<String>,
    /// What stands in for some of these: what, by what.
    pub substitutes: Vec<String>,
    /// Whether the hypervisor tells what it takes.
    pub steal: bool,
    /// The names of what the records name by a number.
    #[serde(flatten)]
    pub names: Names,
    /// Of each tracepoint how often its program ran, the time of that in ns if the cost is measured,
    /// and how many events it did not see; of a row of files the last one tells.
    pub hooks: BTreeMap<String, (u64, u64, u64)>,
    /// The release of the kernel.
    pub kernel: String,
    /// The identity of its boot.
    pub boot_id: String,
}

/// Names of what records name by a number.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Names {
    /// Tasks.
    pub pids: BTreeMap<u32, String>,
    /// Who these are, as far as that is known.
    pub tasks: BTreeMap<u32, Task>,
    /// Interrupts of devices.
    pub irqs: BTreeMap<u32, String>,
    /// Functions of the kernel.
    pub functions: BTreeMap<u64, String>,
}

/// What a trace in a row of files calls with each that is complete, but for the last.
pub type OnFile<'a> = dyn FnMut(Report) -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// Traces until SIGINT, SIGTERM or the duration. Pins the calling thread if asked to, and gives
/// its privileges up: call it from a thread of its own.
pub fn trace(
    options: &Options,
    on_ready: Box<OnReady<'_>>,
    on_file: &mut OnFile<'_>,
) -> Result<Report, TraceError> {
    let records = options.records.unwrap_or(DEFAULT_RECORDS);
    if !(1..=MAX_RECORDS).contains(&records) {
        return Err(TraceError::Records { records });
    }
    let traced = |&cpu: &usize| cpu < MAX_CPUS && is_online(cpu);
    if let Some(&cpu) = options.cpus.iter().chain(&options.senders).find(|cpu| !traced(cpu)) {
        return Err(TraceError::Cpus { cpu });
    }
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    let system = |what| move |source| TraceError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let statistics = options
        .measure_cost
        .then(enable_statistics)
        .transpose()
        .map_err(system("measure eBPF programs"))?;

    let slots = records.next_power_of_two();
    let mut program = Program::load(options, slots as usize)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| TraceError::Write { path, source }
    };
    let path_of = |number| match options.rotate_ns {
        Some(_) => numbered(&options.path, number),
        None => options.path.clone(),
    };
    let first = path_of(1);
    let mut writer = Writer::create(&first, options.cpus.len()).map_err(failed(&first))?;
    for (place, &cpu) in options.cpus.iter().enumerate() {
        program.core(place).begin(cpu, program.rings.first(place), now_ns());
    }
    let mut attached = program.attach();
    let program = program;
    let began = now_ns();
    on_ready().map_err(TraceError::Ready)?;
    let rotates = options.rotate_ns.is_some();
    let measured = options.budget.is_some();
    privileges::keep(Work::Trace { rotates, measured })
        .map_err(system("give up root's privileges"))?;

    let mut cores: Vec<Traced<'_>> = (0..options.cpus.len())
        .map(|place| Traced {
            place,
            program: &program,
            ring: program.ring(place),
            lost: 0,
            looked_ns: began,
        })
        .collect();
    let mut thinning = options.budget.map(|limit| Thinning::new(limit, began));
    let mut timing = None;
    let mut row = Row { options, program: &program, began, told: Told::new() };
    let end = options.duration_ns.map_or(u64::MAX, |ns| began.saturating_add(ns));
    let often = [options.flush_ns, options.rotate_ns].into_iter().flatten().min();
    let mut flush = Deadline::new(often, began);
    let (mut writes, mut number) = (0, 1);
    while !signals.requested() && now_ns() < end {
        // Nobody wakes a CPU that may be the generator's without need: it sleeps until it is told.
        let due = thinning.as_ref().map_or(u64::MAX, Thinning::due_ns).min(flush.due()).min(end);
        let mut left = Duration::from_nanos(due.saturating_sub(now_ns()));
        if cores.iter().any(|core| core.ring.should_drain()) {
            left = left.min(AGAIN);
        }
        signals.wait(Some(program.bell.fd()), left);
        program.bell.hear();
        if let Some(thinning) = &mut thinning {
            let now = now_ns();
            match thinning.step(now) {
                Some(Step::Time) => {
                    let on = raised(MEASURE, enable_statistics).and_then(|on| on);
                    let on = on.map_err(system("measure eBPF programs"))?;
                    let (spent, at) = spent_at(&program);
                    timing = Some((on, spent.unwrap_or(0), at));
                }
                Some(Step::Measure) => {
                    if let Some((_on, before, since)) = timing.take() {
                        let (spent, at) = spent_at(&program);
                        let spent = spent.unwrap_or(before).saturating_sub(before);
                        thinning.measured(spent as f64 / (at - since).max(1) as f64, now_ns());
                    }
                }
                Some(Step::Pause) => {
                    attached.clear();
                    synchronize_rcu();
                    let now = now_ns();
                    for core in &mut cores {
                        core.drain(&mut writer);
                        core.close(&mut writer, now);
                    }
                    thinning.paused(now);
                }
                Some(Step::Resume) => {
                    cores.iter_mut().for_each(|core| core.unseen(&mut writer, now));
                    attached = program.attach_again();
                }
                None => {}
            }
        }
        let is_paused = thinning.as_ref().is_some_and(|one| one.paused_since().is_some());
        let all = flush.is_due();
        let now = now_ns();
        let mut moved = false;
        for core in &mut cores {
            if all && is_paused {
                core.unseen(&mut writer, now);
                moved = true;
            } else if all || core.ring.should_drain() {
                core.drain(&mut writer);
                moved = true;
            }
        }
        if moved {
            writes += 1;
            writer.flush(now).map_err(failed(&writer.path))?;
            row.told.tasks.look(&writer.named.pids);
        }
        // All cores were emptied: what is older than what waits for its place is in the file.
        let until = now.saturating_sub(HOLD_NS);
        if all && options.rotate_ns.is_some_and(|ns| until.saturating_sub(row.began) >= ns) {
            let report = row.report(until, writes, &cores, &writer, thinning.as_ref());
            number += 1;
            let next = path_of(number);
            writer.go_on(&next).map_err(failed(&next))?;
            on_file(report).map_err(TraceError::Ready)?;
        }
    }

    let ended = now_ns();
    drop(attached);
    synchronize_rcu();
    let is_paused = thinning.as_ref().is_some_and(|one| one.paused_since().is_some());
    for core in &mut cores {
        if is_paused {
            core.unseen(&mut writer, ended);
        } else {
            core.drain(&mut writer);
            core.close(&mut writer, ended);
        }
    }
    writer.finish().map_err(failed(&writer.path))?;
    let hooks = program.costs().map_err(system("ask what eBPF programs cost"))?;
    drop(statistics);
    Ok(Report { hooks, ..row.report(ended, writes, &cores, &writer, thinning.as_ref()) })
}

/// What the programs took so far, and when that was so: on a busy machine others may have the core while it
/// is read, which then is read again.
fn spent_at(program: &Program) -> (Option<u64>, u64) {
    let read = || {
        let began = now_ns();
        let spent = program.spent_ns().ok();
        (spent, began, now_ns() - began)
    };
    let (spent, began, took) =
        (0..TRIES).map(|_| read()).min_by_key(|one| one.2).unwrap_or_default();
    (spent, began + took / 2)
}

/// A trace in one file, or in a row of them.
struct Row<'a> {
    options: &'a Options,
    program: &'a Program,
    /// When the present file began.
    began: u64,
    told: Told,
}

/// What was told with earlier files.
struct Told {
    tasks: Tasks,
    lost: BTreeMap<usize, u64>,
    passes: BTreeMap<usize, u64>,
    paused_ns: u64,
    /// Names that were looked up, and those that nobody knows.
    irqs: BTreeMap<u32, Option<String>>,
    functions: BTreeMap<u64, Option<String>>,
}

impl Row<'_> {
    /// What the present file has, which ends at `until`; the next one begins there.
    fn report(
        &mut self,
        until: u64,
        writes: u64,
        cores: &[Traced<'_>],
        writer: &Writer,
        thinning: Option<&Thinning>,
    ) -> Report {
        let Self { options, program, began, told } = self;
        let paused = thinning.map_or(0, |one| one.paused_ns(until));
        let paused_ns = paused.saturating_sub(std::mem::replace(&mut told.paused_ns, paused));
        let mut lost = BTreeMap::new();
        let mut passes = BTreeMap::new();
        for (&cpu, core) in options.cpus.iter().zip(cores) {
            let before = told.lost.insert(cpu, core.lost).unwrap_or(0);
            lost.insert(cpu, core.lost - before);
            if options.adds_up_usual() {
                let (all, half_ns) = program.core(core.place).passes();
                let before = told.passes.insert(cpu, all).unwrap_or(0);
                passes.insert(cpu, (all.saturating_sub(before), half_ns));
            }
        }
        Report {
            path: writer.path.clone(),
            started_ns: std::mem::replace(began, until),
            ended_ns: until,
            paused_ns,
            share: thinning.and_then(|one| one.share(until)),
            writes,
            passes,
            lost,
            missing: program.missing.clone(),
            substitutes: program.substitutes.clone(),
            steal: program.steal,
            names: told.names(program, writer),
            kinds: writer.counts.clone(),
            hooks: BTreeMap::new(),
            kernel: kernel::release(),
            boot_id: kernel::boot_id(),
        }
    }
}

impl Told {
    fn new() -> Self {
        let (lost, passes, paused_ns, irqs, functions) = Default::default();
        Self { tasks: Tasks::new(), lost, passes, paused_ns, irqs, functions }
    }

    /// Names of what is in the present file. The kernel's lists are long: what they said is kept.
    fn names(&mut self, program: &Program, writer: &Writer) -> Names {
        let Named { pids, irqs, functions } = &writer.named;
        let seen = program.seen();
        let name_of = |&pid: &u32| {
            let name = seen.get(&pid).map(|one| one.name.clone()).or_else(|| tasks::name(pid))?;
            Some((pid, name))
        };
        Names {
            pids: pids.iter().filter(|&&pid| pid != 0).filter_map(name_of).collect(),
            tasks: self.tasks.tell(pids, &seen),
            irqs: look_up(&mut self.irqs, irqs, kernel::irqs),
            functions: look_up(&mut self.functions, functions, kernel::functions),
        }
    }
}

/// The names of `wanted`: those that are `known`, or what `find` says of the others.
fn look_up<K: Copy + Ord>(
    known: &mut BTreeMap<K, Option<String>>,
    wanted: &BTreeSet<K>,
    find: impl FnOnce(&BTreeSet<K>) -> BTreeMap<K, String>,
) -> BTreeMap<K, String> {
    let new: BTreeSet<K> = wanted.iter().filter(|key| !known.contains_key(key)).copied().collect();
    if !new.is_empty() {
        let mut found = find(&new);
        known.extend(new.into_iter().map(|key| (key, found.remove(&key))));
    }
    wanted.iter().filter_map(|key| Some((*key, known.get(key)?.clone()?))).collect()
}

/// A core while it is traced.
struct Traced<'a> {
    place: usize,
    program: &'a Program,
    ring: Ring<'a>,
    /// Records that are known to have found no room.
    lost: u64,
    /// When the ring was looked at last.
    looked_ns: u64,
}

impl Traced<'_> {
    /// Moves what waits in the ring to the writer, and tells it what was lost.
    fn drain(&mut self, writer: &mut Writer) {
        use std::sync::atomic::Ordering::Relaxed;
        // Before there is room again: records that find it are not of the time of those that did not.
        let now = now_ns();
        let waiting = self.ring.waiting();
        self.ring.drain(waiting, |[start, what], rest| {
            let record = Record([start, what, rest[0].load(Relaxed), rest[1].load(Relaxed)]);
            writer.push(self.place, record);
        });
        let core = self.program.core(self.place);
        let lost = core.lost() - self.lost;
        if lost > 0 {
            // One that was counted while we asked the last time said so then.
            let since = core.take_lost_since().unwrap_or(self.looked_ns);
            let dur = now.saturating_sub(since);
            let cpu = core.cpu();
            writer.push(self.place, Record::new(since, dur, Kind::LOST, cpu, lost, 0));
            self.lost += lost;
        }
        self.looked_ns = now;
    }

    /// Tells the writer what has not ended by now, when no program runs any more.
    fn close(&mut self, writer: &mut Writer, now: u64) {
        let rest = self.program.core(self.place).unfinished(now);
        rest.into_iter().for_each(|record| writer.push(self.place, record));
        self.looked_ns = now;
    }

    /// Tells the writer that nothing was traced since it was told last: as of lost records, of which there
    /// were none.
    fn unseen(&mut self, writer: &mut Writer, now: u64) {
        let cpu = self.program.core(self.place).cpu();
        while self.looked_ns < now {
            let dur = (now - self.looked_ns).min(UNSEEN_NS);
            writer.push(self.place, Record::new(self.looked_ns, dur, Kind::LOST, cpu, 0, 0));
            self.looked_ns += dur;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_up_is_not_looked_up_again() {
        let mut known = BTreeMap::new();
        let find = |wanted: &BTreeSet<u32>| {
            assert_eq!(wanted, &[1, 2].into());
            BTreeMap::from([(1, "one".to_owned())])
        };
        let found = look_up(&mut known, &[1, 2].into(), find);
        assert_eq!(found, [(1, "one".to_owned())].into());
        let again = look_up(&mut known, &[2, 1].into(), |_| unreachable!("all is known"));
        assert_eq!(again, found);
    }
}
