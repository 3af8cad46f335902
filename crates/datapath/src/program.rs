//! Loads the eBPF tap, attaches it to a link, and maps its ring.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::AtomicU64;

use libbpf_rs::{MapCore, Object, ObjectBuilder, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use memmap2::{MmapOptions, MmapRaw};

use crate::cpu::check;
use crate::interface::Interface;
use crate::ring::{Record, Ring, State};

/// libelf wants whole words.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tap.bpf.o")));

/// The place of the tap among the filters of a hook: before all others.
const PRIORITY: u32 = 1;
/// Names the tap within its priority: "tt".
const HANDLE: u32 = 0x7474;

/// Which packets of an interface a tap stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Those that arrive.
    Ingress,
    /// Those that leave, but for those of senders that bypass the queueing discipline.
    Egress,
}

/// What becomes of a packet after its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on its way.
    Pass,
    /// It is absorbed.
    Drop,
    /// It leaves through the interface with this index.
    Redirect(i32),
}

impl Verdict {
    /// The first two words of `config` in bpf/tap.bpf.c.
    fn words(self) -> [u32; 2] {
        match self {
            Self::Pass => [0, 0],
            Self::Drop => [1, 0],
            Self::Redirect(index) => [2, index as u32],
        }
    }
}

/// A tap that is loaded, with its ring.
#[derive(Debug)]
pub struct Program {
    object: Object,
    state: MmapRaw,
    records: MmapRaw,
    slots: usize,
}

impl Program {
    /// Loads a tap with a ring of `slots` records, a power of two.
    pub fn load(verdict: Verdict, slots: u32) -> libbpf_rs::Result<Self> {
        static QUIET: Once = Once::new();
        // Errors reach the user through our own messages.
        QUIET.call_once(|| {
            libbpf_rs::set_print(None);
        });

        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0)?;
        let [action, forward] = verdict.words();
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name == "ring" {
                map.set_max_entries(slots)?;
            } else if name.ends_with(".rodata") {
                let config = map.initial_value_mut().expect("the program has constants");
                for (bytes, word) in config.chunks_exact_mut(4).zip([action, forward, slots - 1]) {
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
            }
        }
        let object = open.load()?;
        let map = |suffix: &str, len: usize| -> io::Result<MmapRaw> {
            let map = object
                .maps()
                .find(|map| map.name().to_string_lossy().ends_with(suffix))
                .expect("the program has this map");
            MmapOptions::new().len(len).map_raw(map.as_fd().as_raw_fd())
        };
        let state = map(".bss", size_of::<State>())?;
        let records = map("ring", slots as usize * size_of::<Record>())?;
        Ok(Self { object, state, records, slots: slots as usize })
    }

    /// The ring; there must be one consumer at a time.
    pub fn ring(&self) -> Ring<'_> {
        // SAFETY: both mappings are zeroed memory of the right size, aligned to a page, shared
        // with the kernel and accessed through atomics alone, and live as long as `self`.
        unsafe {
            Ring::new(
                &*self.state.as_ptr().cast::<State>(),
                std::slice::from_raw_parts(
                    self.records.as_ptr().cast::<[AtomicU64; 2]>(),
                    self.slots,
                ),
            )
        }
    }

    /// Attaches the tap to an interface of this network namespace.
    pub fn attach(&self, interface: &Interface, hook: Hook) -> libbpf_rs::Result<Attachment> {
        let qdisc = Qdisc::ensure(interface.index)?;
        let program = self.object.progs().next().expect("the object has a program");
        let mut hook = TcHookBuilder::new(program.as_fd())
            .ifindex(interface.index)
            .priority(PRIORITY)
            .handle(HANDLE)
            .hook(match hook {
                Hook::Ingress => TC_INGRESS,
                Hook::Egress => TC_EGRESS,
            });
        hook.attach()?;
        Ok(Attachment { hook, _qdisc: qdisc })
    }

    /// Time that the program took, in nanoseconds, and how often it ran, while statistics were on
    /// (see [`enable_statistics`]).
    pub fn run_time(&self) -> io::Result<(u64, u64)> {
        let program = self.object.progs().next().expect("the object has a program");
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
        // SAFETY: pointer and length describe `info`.
        check(unsafe {
            libbpf_sys::bpf_prog_get_info_by_fd(
                program.as_fd().as_raw_fd(),
                &raw mut info,
                &raw mut len,
            )
        })?;
        Ok((info.run_time_ns, info.run_cnt))
    }
}

/// Makes the kernel time all eBPF programs for as long as the descriptor is open.
pub fn enable_statistics() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers; the descriptor is ours.
    unsafe {
        let fd = check(libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// A tap on a link; dropping it takes the tap away.
#[derive(Debug)]
pub struct Attachment {
    hook: TcHook,
    // After the hook: dropped last.
    _qdisc: Qdisc,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Fails when the interface is gone, and the tap with it.
        let _ = self.hook.detach();
    }
}

/// The clsact queueing discipline that tc programs hang on; removed again if it was made here.
#[derive(Debug)]
struct Qdisc {
    hook: libbpf_sys::bpf_tc_hook,
    made: bool,
}

impl Qdisc {
    fn ensure(index: i32) -> io::Result<Self> {
        let mut hook = libbpf_sys::bpf_tc_hook {
            sz: size_of::<libbpf_sys::bpf_tc_hook>() as u64,
            ifindex: index,
            attach_point: libbpf_sys::BPF_TC_INGRESS,
            ..Default::default()
        };
        // libbpf_rs::TcHook does not tell whether the qdisc was there before.
        // SAFETY: `hook` says its own size.
        let made = match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) } {
            0 => true,
            error if error == -libc::EEXIST => false,
            error => return Err(io::Error::from_raw_os_error(-error)),
        };
        Ok(Self { hook, made })
    }
}

impl Drop for Qdisc {
    fn drop(&mut self) {
        if self.made {
            // Both directions together stand for the qdisc itself.
            self.hook.attach_point = libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS;
            // SAFETY: as above. Fails when the interface is gone.
            unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut self.hook) };
        }
    }
}
