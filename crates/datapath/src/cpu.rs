//! Where and how urgently the calling thread runs.

use std::io;
use std::mem::{size_of, zeroed};

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
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(CpuError::NotUsable { cpu });
    }
    // SAFETY: a zeroed cpu_set_t is the empty set, and `cpu` lies within it.
    let pinned = unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    };
    pinned.then_some(()).ok_or(CpuError::NotUsable { cpu })
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
    // SAFETY: plain system calls about the calling thread and its process. (On Linux, PRIO_PROCESS
    // with 0 is the thread.)
    let leads_session = unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0);
        libc::getsid(0) == libc::getpid()
    };
    // Where the scheduler groups tasks by session (autogroup), niceness counts within a session
    // only, and between sessions that of the group counts. Ours to set if the session is ours.
    if leads_session {
        let _ = std::fs::write("/proc/self/autogroup", nice.to_string());
    }
}

/// Waits until every program that the kernel was running when this was called has ended: eBPF
/// programs on network hooks are RCU readers.
pub fn synchronize_rcu() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: takes no pointers.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if done != 0 {
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
    use super::*;

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        for cpu in [1023, 1024, usize::MAX] {
            let message = pin(cpu).expect_err("no such CPU").to_string();
            assert!(message.contains(&cpu.to_string()) && message.contains("--cpu"));
        }
    }

    #[test]
    fn pinning_moves_the_thread() {
        // Whatever CPU this thread is on is one that it may use.
        let cpu = unsafe { libc::sched_getcpu() } as usize;
        pin(cpu).expect("may run here");
        assert_eq!(unsafe { libc::sched_getcpu() } as usize, cpu);
    }
}
