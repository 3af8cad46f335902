//! Who the tasks are that had traced cores: what is typed to find one, and how it is scheduled.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The priority of a task that is nice to nobody; `DEFAULT_PRIO` of the kernel.
const USUAL_PRIORITY: i32 = 120;
/// Bytes of a command line that are kept.
const LONGEST: u64 = 256;
/// What names of our threads begin with.
const OURS: &str = "tt-";

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Its process.
    pub pid: u32,
    /// What was typed; none of threads of the kernel, and of what ended before anybody looked.
    pub command: Option<String>,
    /// Its scheduling policy.
    pub policy: &'static str,
    /// From 1 to 99 in real time, else its nice value.
    pub priority: i32,
    /// Its control group, as a path below that of the machine.
    pub cgroup: Option<String>,
    /// Whether the program that traces started it.
    pub own: bool,
}

/// What a program of the tracer saw of a task that left a core: `struct name` in bpf/trace_tasks.h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) scheduled: u64,
    pub(super) group: u64,
}

impl Seen {
    /// What is known of it when it has ended.
    fn task(&self, groups: &BTreeMap<u64, String>) -> Task {
        let [policy, real_time, low, high, ..] = self.scheduled.to_le_bytes();
        let usual = i32::from(u16::from_le_bytes([low, high])) - USUAL_PRIORITY;
        let (policy, priority) = scheduling(policy.into(), real_time.into(), usual);
        // In that of the machine it is also where version 1 has its groups.
        let cgroup = groups.get(&self.group).filter(|path| *path != "/").cloned();
        let pid = (self.scheduled >> 32) as u32;
        // Threads of ours have such names, and nobody else's.
        let own = self.name.starts_with(OURS);
        Task { pid, command: None, policy, priority, cgroup, own }
    }
}

/// Tasks that were looked for.
#[derive(Debug)]
pub(super) struct Tasks {
    known: BTreeMap<u32, Task>,
    /// Whose children are our own.
    root: u32,
}

impl Tasks {
    pub(super) fn new() -> Self {
        let mut root = std::process::id();
        while let Some(parent) = parent(root).filter(|&pid| command(pid).is_some_and(is_own)) {
            root = parent;
        }
        Self { known: BTreeMap::new(), root }
    }

    /// Looks for those of `pids` that were not looked for yet, before they end.
    pub(super) fn look(&mut self, pids: &BTreeSet<u32>) {
        for &pid in pids {
            if !self.known.contains_key(&pid)
                && let Some(task) = self.living(pid)
            {
                self.known.insert(pid, task);
            }
        }
    }

    /// What is known of each of `pids`, of which programs have `seen` some.
    pub(super) fn tell(
        &mut self,
        pids: &BTreeSet<u32>,
        seen: &BTreeMap<u32, Seen>,
    ) -> BTreeMap<u32, Task> {
        let ended =
            |pid: &u32| name(*pid).is_none_or(|now| seen.get(pid).is_some_and(|s| s.name != now));
        let (gone, here): (BTreeSet<u32>, BTreeSet<u32>) = pids.iter().copied().partition(ended);
        for &pid in &here {
            if let Some(task) = self.living(pid) {
                self.known.insert(pid, task); // what it is now
            }
        }
        self.known.retain(|pid, _| pids.contains(pid));
        let mut found = self.known.clone();
        let ended = gone.iter().filter_map(|pid| Some((*pid, seen.get(pid)?)));
        let left: Vec<(u32, &Seen)> = ended.filter(|(pid, _)| !found.contains_key(pid)).collect();
        let groups = if left.is_empty() { BTreeMap::new() } else { groups() };
        let mut processes = BTreeMap::new();
        for (pid, one) in left {
            let task = one.task(&groups);
            // A thread may end long before its process.
            let process = processes.entry(task.pid).or_insert_with(|| self.living(task.pid));
            found.insert(
                pid,
                match process.clone() {
                    Some(process) => {
                        Task { policy: task.policy, priority: task.priority, ..process }
                    }
                    None => task,
                },
            );
        }
        found
    }

    fn living(&self, pid: u32) -> Option<Task> {
        let stat = stat(pid)?;
        let number = |field: usize| stat.get(field - 3)?.parse::<i32>().ok();
        let (policy, priority) = scheduling(number(41)?, number(40)?, number(19)?);
        let process = process(pid)?;
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
        Some(Task {
            pid: process,
            command: command(process),
            policy,
            priority,
            cgroup: cgroup.and_then(|text| group_in(&text)),
            // Who is started from a program of the user's has its name alone.
            own: name(pid).is_some_and(|name| name.starts_with(OURS))
                || std::iter::successors(Some(process), |&pid| parent(pid))
                    .any(|pid| pid == self.root),
        })
    }
}

/// A policy and a priority in words; sched(7).
fn scheduling(policy: i32, real_time: i32, nice: i32) -> (&'static str, i32) {
    match policy {
        1 => ("FIFO", real_time),
        2 => ("RR", real_time),
        3 => ("BATCH", nice),
        5 => ("IDLE", nice),
        6 => ("DEADLINE", 0),
        7 => ("EXT", nice),
        _ => ("OTHER", nice),
    }
}

/// The name of a task that lives.
pub(super) fn name(pid: u32) -> Option<String> {
    // A task that leads no group has a folder, too, though it is in no list.
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end_matches('\n').into())
}

/// The fields of its stat from the third on; proc_pid_stat(5).
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok().filter(|&parent| parent != 0)
}

fn process(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

fn command(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).replace(char::is_control, " ");
    Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())
}

/// Whether a command line is that of a program of ours.
fn is_own(command: String) -> bool {
    let mut words = command.split(' ').take(4).map(|word| word.rsplit('/').next().unwrap_or(word));
    let program = words.next().unwrap_or_default();
    program == "tailtap"
        || program.starts_with("python")
            && words.any(|word| word == "tailtap" || word.starts_with("tailtap."))
}

/// The group that /proc/PID/cgroup tells of: that of version 2 or, where all have the same one there, that
/// by which version 1 shares processors.
fn group_in(text: &str) -> Option<String> {
    let lines = text
        .lines()
        .filter_map(|line| line.splitn(3, ':').skip(1).collect::<Vec<_>>().try_into().ok());
    let mut groups: Vec<[&str; 2]> = lines.collect();
    let rank = |controllers: &str| match controllers {
        "" => 0,
        _ if controllers.split(',').any(|one| one == "cpu") => 1,
        _ => 2,
    };
    groups.sort_by_key(|[controllers, path]| (*path == "/", rank(controllers)));
    groups.first().map(|[_, path]| (*path).to_owned())
}

/// The paths of all groups of version 2, by their inodes.
fn groups() -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let root = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(place))
    });
    let mut left: Vec<PathBuf> = root.iter().cloned().collect();
    while let (Some(root), Some(folder)) = (&root, left.pop()) {
        if let (Ok(about), Ok(within)) = (fs::metadata(&folder), folder.strip_prefix(root)) {
            found.insert(about.ino(), Path::new("/").join(within).to_string_lossy().into_owned());
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        left.extend(
            entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_shares_processors_is_told() {
        let told = |text| group_in(text).expect("a group");
        assert_eq!(told("0::/system.slice/cron.service\n"), "/system.slice/cron.service");
        assert_eq!(told("4:memory:/m\n3:cpu,cpuacct:/c:d\n1:name=systemd:/\n0::/\n"), "/c:d");
        assert_eq!(told("1:cpu:/\n0::/\n"), "/");
        assert_eq!(group_in(""), None);
    }

    #[test]
    fn a_task_that_lives_is_looked_for_and_one_that_ended_is_as_it_was_seen() {
        let (own, gone) = (std::process::id(), u32::MAX);
        let scheduled = 1 | 50 << 8 | 120 << 16 | u64::from(gone) << 32;
        let seen = BTreeMap::from([(gone, Seen { name: "hog".into(), scheduled, group: 0 })]);
        let told = Tasks::new().tell(&[own, gone].into(), &seen);
        assert_eq!((told[&own].pid, told[&own].own), (own, true));
        assert!(told[&own].command.as_ref().is_some_and(|text| text.contains("datapath")));
        let ended = Task { pid: gone, policy: "FIFO", priority: 50, ..Task::default() };
        assert_eq!(told[&gone], ended);
    }

    #[test]
    fn our_own_programs_are_known_by_what_was_typed() {
        let own = |text: &str| is_own(text.into());
        assert!(own("/usr/bin/python3 -P -m tailtap generate") && own("/opt/bin/tailtap run x"));
        assert!(!own("vim tailtap.md") && !own("/home/tailtap/hog"));
    }
}
