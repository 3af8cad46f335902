//! Where and how urgently the calling thread runs.

use std::io;
use std::num::NonZeroU64;

use rustix::process::setpriority_process;
use rustix::thread::{
    CpuSet, MembarrierCommand, membarrier, sched_setaffinity, set_current_timer_slack,
};

/// A thread could not be put on a CPU.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// No such CPU, or it is offline, or outside this process's cpuset.
    #[error(
        "CPU {cpu} cannot be used: it does not exist, is offline, or is outside this process's \
         cpuset (choose another with --cpu)"
    )]
    NotUsable {
        /// The CPU asked for.
        cpu: usize,
    },
}

/// Puts the calling thread on one CPU.
pub fn pin(cpu: usize) -> Result<(), CpuError> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(CpuError::NotUsable { cpu });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|_| CpuError::NotUsable { cpu })
}

/// Whether the machine has this CPU, and it is switched on.
pub fn is_online(cpu: usize) -> bool {
    // The first CPU of most machines cannot be switched off, and has no such file.
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
    match std::fs::read_to_string(format!("{folder}/online")) {
        Ok(text) => text.trim() == "1",
        Err(_) => std::path::Path::new(&folder).exists(),
    }
}

/// Makes the calling thread more urgent than ordinary ones and its timers exact. Not real-time
/// scheduling: a spinning real-time thread is throttled, by default 50 ms in every second. Without
/// the privilege nothing changes.
pub fn hurry() {
    be_nice(-20);
}

/// Gives the calling thread a niceness from -20 to 19, and makes its timers exact. Without the
/// privilege for a negative one it keeps its own.
pub fn be_nice(nice: i32) {
    // On Linux, the calling process is the calling thread.
    let _ = setpriority_process(None, nice);
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    // Where the scheduler groups tasks by session (autogroup), niceness counts within a session
    // only, and between sessions that of the group counts. Ours to set if the session is ours.
    // It is 0 where its leader is outside this PID namespace, as in a container, which rustix does
    // not foresee.
    // SAFETY: it takes no pointer.
    let leader = unsafe { libc::getsid(0) };
    if u32::try_from(leader) == Ok(std::process::id()) {
        let _ = std::fs::write("/proc/self/autogroup", nice.to_string());
    }
}

/// Waits until every program that the kernel was running when this was called has ended: eBPF
/// programs on network hooks are RCU readers.
pub fn synchronize_rcu() {
    if membarrier(MembarrierCommand::Global).is_err() {
        // Refused on nohz_full kernels and by some sandboxes; no program runs this long.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The last error of the C library.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getcpu;

    use super::*;

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        for cpu in [1023, 1024, usize::MAX] {
            let message = pin(cpu).expect_err("no such CPU").to_string();
            assert!(message.contains(&cpu.to_string()) && message.contains("with --cpu"));
        }
    }

    #[test]
    fn pinning_moves_the_thread() {
        // Whatever CPU this thread is on is one that it may use.
        let cpu = sched_getcpu();
        pin(cpu).expect("may run here");
        assert_eq!(sched_getcpu(), cpu);
    }
}
