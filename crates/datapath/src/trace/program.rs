//! The tracer's eBPF programs: which of them are loaded, what they are told, and their rings.

use std::collections::BTreeMap;
use std::io;
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapFlags};
use memmap2::MmapRaw;

use super::core::Core;
use super::kernel::{self, Tracepoints};
use super::record::RECORD_WORDS;
use super::tasks::Seen;
use super::{Mode, Options, TraceError};
use crate::bpf::{Attachment, Bell, BpfError, Loaded, Opened, Rings, TRACE};
use crate::clock::now_ns;
use crate::ring::Ring;

/// CPUs that the programs can tell from each other: `MAX_CPUS` in bpf/trace.h.
pub(super) const MAX_CPUS: usize = 1024;
/// CPUs that hand packets over, and where their place stands in a word: the same there.
const MAX_SENDERS: usize = 64;
const SENDER_BITS: u32 = 16;
/// Bytes of a name, and of what is kept of a task that serves.
const NAME_LEN: usize = 16;
const SERVED_LEN: usize = 32;

/// Tracepoints of which only a full trace has records.
const FULL: [&str; 12] = [
    "ipi_send_cpu",
    "hrtimer_expire_entry",
    "hrtimer_expire_exit",
    "page_fault_user",
    "page_fault_kernel",
    "cpu_frequency",
    "mm_vmscan_direct_reclaim_begin",
    "mm_vmscan_direct_reclaim_end",
    "mm_compaction_begin",
    "mm_compaction_end",
    "kvm_exit",
    "kvm_entry",
];
/// Tracepoints of what a kernel without them cannot do: nothing is missed.
const WITH_FEATURE: [&str; 11] = [
    "thermal_apic_entry",
    "thermal_apic_exit",
    "x86_platform_ipi_entry",
    "x86_platform_ipi_exit",
    "threshold_apic_entry",
    "threshold_apic_exit",
    "deferred_error_apic_entry",
    "deferred_error_apic_exit",
    "kvm_exit",
    "kvm_entry",
    "mm_compaction_begin",
];
/// What stands in for a tracepoint where the kernel has only another one.
const SUBSTITUTES: [(&str, &str, &str); 1] = [(
    "csd_function_entry",
    "tlb_flush",
    "functions that other CPUs call: TLB flushes by tlb_flush within their vector, others by the \
     vector alone",
)];
/// Those that a thin trace leaves out where the functions that other CPUs call are told themselves. Of
/// CPUs that hand packets over, functions are not told.
const CALLS: [&str; 4] = [
    "call_function_entry",
    "call_function_exit",
    "call_function_single_entry",
    "call_function_single_exit",
];
const FUNCTIONS: [&str; 2] = ["csd_function_entry", "csd_function_exit"];
/// Those that are left out where other CPUs tell of packets, and no driver passes them on itself.
const UNSTEERED: [&str; 2] = ["softirq_raise", "napi_poll"];
/// Those that are left out when no task serves.
const WAKING: [&str; 2] = ["sched_waking", "sched_wakeup"];
/// Those that are left out when nobody says in which networks packets are served.
const RECEIVING: [&str; 2] = ["netif_receive_skb", "napi_poll"];

/// A program and the tracepoint that it follows.
#[derive(Clone, Debug)]
pub(super) struct Hook {
    pub(super) program: String,
    pub(super) tracepoint: String,
    /// Its arguments are numbers to the program.
    raw: bool,
}

/// The programs, loaded, with a ring for each core.
pub(super) struct Program {
    loaded: Loaded,
    /// Rings when a core's ring should be drained.
    pub(super) bell: Bell,
    cores: MmapRaw,
    pub(super) rings: Rings,
    /// Bytes of a core.
    core_len: usize,
    pub(super) hooks: Vec<Hook>,
    /// What the trace lacks, and why.
    pub(super) missing: Vec<String>,
    /// What stands in for it.
    pub(super) substitutes: Vec<String>,
    pub(super) steal: bool,
}

impl Program {
    /// Loads what this kernel can follow, with `slots` records for each core, a power of two.
    pub(super) fn load(options: &Options, slots: usize) -> Result<Self, TraceError> {
        let mut open = TRACE.open()?;
        let Choice { hooks, left_out, missing, substitutes } = Choice::make(
            &open,
            options.mode,
            !options.served.is_empty(),
            !options.networks.is_empty(),
            options.steered,
            !options.senders.is_empty(),
        )?;
        left_out.iter().for_each(|program| open.leave_out(program));
        let steal_at = kernel::steal_offset();
        open.set_constants(&constants(options, slots, steal_at.unwrap_or(0)));
        open.size_map("cores", options.cpus.len() as u32, None)?;
        let rings = open.size_rings(options.cpus.len(), slots, RECORD_WORDS)?;
        let loaded = open.load().map_err(|error| match error {
            BpfError::Memory { .. } => TraceError::Memory { records: slots as u64 },
            other => other.into(),
        })?;
        let core_len = loaded.map("cores").value_size() as usize;
        let cores = loaded.map_memory("cores", options.cpus.len() * core_len)?;
        let rings = rings.share(&loaded)?;
        let served = loaded.map("served");
        for pid in &options.served {
            served
                .update(&pid.to_ne_bytes(), &[0; SERVED_LEN], MapFlags::ANY)
                .map_err(|error| loaded.refused(error))?;
        }
        let networks = loaded.map("networks");
        for network in &options.networks {
            networks
                .update(&network.to_ne_bytes(), &[0], MapFlags::ANY)
                .map_err(|error| loaded.refused(error))?;
        }
        let steal = steal_at.is_some();
        let bell = loaded.bell()?;
        Ok(Self { loaded, bell, cores, rings, core_len, hooks, missing, substitutes, steal })
    }

    /// What is shared with the programs of the core at this place.
    pub(super) fn core(&self, place: usize) -> &Core {
        // SAFETY: the mapping is zeroed memory with this many bytes for each core, aligned to a
        // page, shared with the kernel and accessed through atomics alone, and lives as long as
        // `self`.
        unsafe { &*self.cores.as_ptr().add(place * self.core_len).cast::<Core>() }
    }

    /// Its ring; there must be one consumer at a time.
    pub(super) fn ring(&self, place: usize) -> Ring<'_> {
        let core = self.core(place);
        self.rings.ring(place, [&core.head, &core.tail, &core.bell_at])
    }

    /// Begins to trace. What the kernel refuses to follow is missing.
    pub(super) fn attach(&mut self) -> Vec<Attachment> {
        let mut attached = Vec::new();
        for Hook { program, tracepoint, raw } in &self.hooks {
            match self.loaded.follow(program, raw.then_some(tracepoint)) {
                Ok(attachment) => attached.push(attachment),
                Err(error) => self.missing.push(format!("{tracepoint}: {error}")),
            }
        }
        attached
    }

    /// The same again of what was taken away for a while.
    pub(super) fn attach_again(&self) -> Vec<Attachment> {
        self.forget();
        let now = now_ns();
        (0..self.cores.len() / self.core_len).for_each(|place| self.core(place).begin_again(now));
        let follow = |hook: &Hook| {
            self.loaded.follow(&hook.program, hook.raw.then_some(&hook.tracepoint)).ok()
        };
        self.hooks.iter().filter_map(follow).collect()
    }

    /// Forgets what was open: nobody saw how it went on. No program may run.
    fn forget(&self) {
        for place in 0..self.cores.len() / self.core_len {
            for at in (0..self.core_len).step_by(size_of::<u64>()).filter(|&at| !Core::stays(at)) {
                // SAFETY: as in `core`; all members of a core are made of aligned words.
                let word = unsafe {
                    &*self.cores.as_ptr().add(place * self.core_len + at).cast::<AtomicU64>()
                };
                word.store(0, Ordering::Relaxed);
            }
        }
        // What fails here is seen where nothing can be attached: there is nothing to forget then.
        let statics = self.loaded.map(".bss");
        let zeros = vec![0; statics.value_size() as usize];
        let _ = statics.update(&0u32.to_ne_bytes(), &zeros, MapFlags::ANY);
        let served = self.loaded.map("served");
        for key in served.keys() {
            let _ = served.update(&key, &[0; SERVED_LEN], MapFlags::ANY);
        }
        let works = self.loaded.map("works");
        for key in works.keys() {
            let _ = works.delete(&key);
        }
    }

    /// The time that all programs took so far, in nanoseconds, while statistics were on.
    pub(super) fn spent_ns(&self) -> io::Result<u64> {
        self.hooks.iter().map(|hook| Ok(self.loaded.run_time(&hook.program)?.0)).sum()
    }

    /// The tasks that left a core, by pid.
    pub(super) fn seen(&self) -> BTreeMap<u32, Seen> {
        let map = self.loaded.map("names");
        let entry = |key: Vec<u8>| {
            let told = map.lookup(&key, MapFlags::ANY).ok()??;
            let (name, words) = told.split_at_checked(NAME_LEN)?;
            let (words, _) = words.as_chunks();
            let &[scheduled, group] = words else { return None };
            let name = name.split(|&byte| byte == 0).next()?;
            let seen = Seen {
                name: String::from_utf8_lossy(name).into_owned(),
                scheduled: u64::from_ne_bytes(scheduled),
                group: u64::from_ne_bytes(group),
            };
            Some((u32::from_ne_bytes(key.try_into().ok()?), seen))
        };
        map.keys().filter_map(entry).collect()
    }

    /// How often the program of each tracepoint ran, the time of that, and how many events it did
    /// not see, as it was at work on one like them. The times are 0 unless statistics were on
    /// (see [`enable_statistics`](crate::bpf::enable_statistics)).
    pub(super) fn costs(&self) -> io::Result<BTreeMap<String, (u64, u64, u64)>> {
        let cost = |hook: &Hook| {
            let (ns, runs) = self.loaded.run_time(&hook.program)?;
            let skipped = self.loaded.skipped(&hook.program)?;
            Ok((hook.tracepoint.clone(), (runs, ns, skipped)))
        };
        self.hooks.iter().map(cost).collect()
    }
}

/// Which programs are loaded, as the kernel has what they follow.
#[derive(Debug, Default)]
struct Choice {
    hooks: Vec<Hook>,
    left_out: Vec<String>,
    missing: Vec<String>,
    substitutes: Vec<String>,
}

impl Choice {
    fn make(
        open: &Opened,
        mode: Mode,
        tasks_serve: bool,
        networks_known: bool,
        steered: bool,
        senders: bool,
    ) -> Result<Self, TraceError> {
        let known = Tracepoints::read().ok_or(TraceError::NoTypes)?;
        let thin = mode == Mode::Thin;
        let functions = FUNCTIONS.iter().all(|name| known.have(name));
        let mut choice = Self::default();
        for (program, section) in open.programs() {
            let tracepoint = section.rsplit('/').next().unwrap_or_default().to_owned();
            let name = tracepoint.as_str();
            let spared = FULL.contains(&name)
                || functions && !senders && CALLS.contains(&name)
                || steered && UNSTEERED.contains(&name);
            let wanted = !(thin && spared)
                && (!WAKING.contains(&name) || tasks_serve)
                && (!RECEIVING.contains(&name) || networks_known);
            if wanted && known.have(name) {
                choice.hooks.push(Hook { program, raw: section.starts_with("raw_tp"), tracepoint });
                continue;
            }
            if wanted && !WITH_FEATURE.contains(&name) {
                choice.missing.push(format!("{name}: this kernel has no such tracepoint"));
            }
            choice.left_out.push(program);
        }
        for (lacking, stand_in, sentence) in SUBSTITUTES {
            if !known.have(lacking) && known.have(stand_in) {
                choice.substitutes.push(sentence.into());
            }
        }
        Ok(choice)
    }
}

/// What a trace would lack on this kernel, and what would stand in for it. Needs no privileges.
pub fn lacking(mode: Mode) -> Result<(Vec<String>, Vec<String>), TraceError> {
    let choice = Choice::make(&TRACE.open()?, mode, true, true, false, true)?;
    Ok((choice.missing, choice.substitutes))
}

/// `config` in bpf/trace.h, as words.
fn constants(options: &Options, slots: usize, steal_at: i64) -> Vec<u32> {
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let full = u32::from(options.mode == Mode::Full);
    let served = u32::from(!options.served.is_empty());
    let usual = u32::from(options.adds_up_usual());
    let mut words = vec![slots as u32 - 1, options.floor_ns, full, served, usual, 0];
    words.extend(halves(steal_at as u64));
    words.extend(halves(kernel::own_function()));
    let mut cores = [0; MAX_CPUS];
    for (place, &cpu) in options.cpus.iter().enumerate() {
        cores[cpu] = place as u32 + 1;
    }
    let senders = options.senders.iter().filter(|cpu| !options.cpus.contains(cpu));
    for (place, &cpu) in senders.take(MAX_SENDERS).enumerate() {
        cores[cpu] |= (place as u32 + 1) << SENDER_BITS;
    }
    words.extend(cores);
    words
}
