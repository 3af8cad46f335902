//! What the kernel says that programs cost.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::Loaded;
use crate::cpu::check;

/// Runs of a program that is only measured.
const TEST_RUNS: i32 = 200_000;

/// Makes the kernel time all eBPF programs for as long as the descriptor is open.
pub(crate) fn enable_statistics() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers; the descriptor is ours.
    unsafe {
        let fd = check(libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

impl Loaded {
    /// Time that a program took, in nanoseconds, and how often it ran, while statistics were on.
    pub(crate) fn run_time(&self, program: &str) -> io::Result<(u64, u64)> {
        let info = program_info(self.program(program).as_fd().as_raw_fd())?;
        Ok((info.run_time_ns, info.run_cnt))
    }

    /// How often a program was passed over, as it was at work on the same core (Linux 5.12).
    pub(crate) fn skipped(&self, program: &str) -> io::Result<u64> {
        Ok(program_info(self.program(program).as_fd().as_raw_fd())?.recursion_misses)
    }

    /// Mean nanoseconds that a program takes, run here with a short frame while statistics are on.
    pub(crate) fn test_run(&self, program: &str) -> io::Result<f64> {
        // A frame as short as the kernel permits.
        self.run(program, &[0; 64], TEST_RUNS)?;
        let (time, runs) = self.run_time(program)?;
        Ok(time as f64 / runs.max(1) as f64)
    }

    /// Runs a program with a frame, so often.
    pub(crate) fn run(&self, program: &str, frame: &[u8], repeat: i32) -> io::Result<()> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            repeat,
            ..Default::default()
        };
        let fd = self.program(program).as_fd().as_raw_fd();
        // SAFETY: pointer and length in `options` describe `frame`.
        check(unsafe { libbpf_sys::bpf_prog_test_run_opts(fd, &raw mut options) }).map(drop)
    }
}

/// What the kernel knows of a program.
pub(super) fn program_info(fd: i32) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: pointer and length describe `info`.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut len) })?;
    Ok(info)
}
