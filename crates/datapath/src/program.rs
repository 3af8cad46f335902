//! Loads the eBPF tap, attaches it to a link, and maps its ring.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::AtomicU64;

use libbpf_rs::{
    MapCore, Object, ObjectBuilder, Program as Loaded, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder,
};
use memmap2::{MmapOptions, MmapRaw};
use tailtap_analysis::key::Field;

use crate::cpu::check;
use crate::interface::Interface;
use crate::ring::{Ring, State};

/// libelf wants whole words.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tap.bpf.o")));

/// The program that taps, the one that notes when XDP frames are handed over, the one that does
/// nothing, and the one that reads the clock.
const TAP: &str = "tap";
const FLUSHED: &str = "flushed";
const NOTHING: &str = "nothing";
const ONLY_CLOCK: &str = "only_clock";
/// Taps that can be told apart on one hook; nobody has as many.
const MAX_PROGRAMS: usize = 64;
/// The types of the running kernel, which [`FLUSHED`] reads.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Runs of the programs that the tap is compared with.
const COMPARED_RUNS: u32 = 200_000;

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

impl Hook {
    fn tcx(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }
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

/// Which packets a tap keeps, and what of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Time and id of every packet in MoonSniff's layout.
    Stamps,
    /// Time and id of every packet that is long enough to have this field, at most
    /// [`MAX_KEY_WIDTH`] bytes wide.
    Field(Field),
    /// Time and at most so many first bytes of every packet; not 0.
    Bytes(u32),
}

/// Bytes of the widest id that a stamp holds.
pub const MAX_KEY_WIDTH: usize = 4;
/// Words of a slot before the bytes of a packet: `struct packet` in bpf/tap.bpf.c.
pub const PACKET_WORDS: usize = 3;

impl Keep {
    /// Words of a slot in the ring.
    pub fn slot_words(self) -> usize {
        match self {
            Self::Stamps | Self::Field(_) => 2,
            Self::Bytes(snap) => PACKET_WORDS + (snap as usize).div_ceil(8),
        }
    }

    /// The words of `config` in bpf/tap.bpf.c from `snap` on.
    fn words(self) -> [u32; 4] {
        match self {
            Self::Stamps => [0; 4],
            Self::Field(field) => {
                [0, field.offset as u32, field.width as u32, u32::from(field.big_endian)]
            }
            Self::Bytes(snap) => [snap, 0, 0, 0],
        }
    }
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

/// Which moment of a packet a stamp is the time of.
#[derive(Clone, Copy, Debug)]
pub enum Moment<'a> {
    /// When the tap's program sees it.
    Now,
    /// When it was handed over to this interface, the one that is tapped. The kernel must be asked
    /// for stamps, see [`crate::arrival`].
    Arrival(&'a Interface),
}

impl Moment<'_> {
    /// The last three words of `config` in bpf/tap.bpf.c.
    fn words(self, notes_flushes: bool) -> io::Result<[u32; 3]> {
        Ok(match self {
            Self::Now => [0; 3],
            Self::Arrival(_) if !notes_flushes => [1, 0, 0],
            Self::Arrival(interface) => {
                let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
                [1, interface.index as u32, namespace as u32]
            }
        })
    }
}

/// A tap that is loaded, with its ring.
#[derive(Debug)]
pub struct Program {
    object: Object,
    state: MmapRaw,
    records: MmapRaw,
    slots: usize,
    slot_words: usize,
    /// Whether it is told when XDP frames are handed over.
    notes_flushes: bool,
}

impl Program {
    /// Loads a tap with a ring of `slots` records, a power of two.
    ///
    /// A kernel without its own types (CONFIG_DEBUG_INFO_BTF) does not tell when XDP frames are
    /// handed over: they are stamped on receipt, and counted as late.
    pub fn load(
        verdict: Verdict,
        keep: Keep,
        slots: u32,
        moment: Moment<'_>,
    ) -> libbpf_rs::Result<Self> {
        let wants = matches!(moment, Moment::Arrival(_)) && Path::new(KERNEL_TYPES).exists();
        match Self::load_with(verdict, keep, slots, moment, wants) {
            Err(_) if wants => Self::load_with(verdict, keep, slots, moment, false),
            result => result,
        }
    }

    fn load_with(
        verdict: Verdict,
        keep: Keep,
        slots: u32,
        moment: Moment<'_>,
        notes_flushes: bool,
    ) -> libbpf_rs::Result<Self> {
        static QUIET: Once = Once::new();
        // Errors reach the user through our own messages.
        QUIET.call_once(|| {
            libbpf_rs::set_print(None);
        });

        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0)?;
        let slot_words = keep.slot_words();
        let mut words = Vec::from(verdict.words());
        words.push(slots - 1);
        words.extend(keep.words());
        words.extend(moment.words(notes_flushes)?);
        for mut program in open.progs_mut() {
            if program.name() == FLUSHED {
                program.set_autoload(notes_flushes);
            }
        }
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name == "ring" {
                map.set_max_entries(slots)?;
                map.set_value_size((slot_words * size_of::<u64>()) as u32)?;
            } else if name.ends_with(".rodata") {
                let config = map.initial_value_mut().expect("the program has constants");
                for (bytes, word) in config.chunks_exact_mut(4).zip(&words) {
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
        let slots = slots as usize;
        let records = map("ring", slots * slot_words * size_of::<u64>())?;
        Ok(Self { object, state, records, slots, slot_words, notes_flushes })
    }

    /// The ring; there must be one consumer at a time.
    pub fn ring(&self) -> Ring<'_> {
        // SAFETY: both mappings are zeroed memory of the right size, aligned to a page, shared
        // with the kernel and accessed through atomics alone, and live as long as `self`.
        unsafe {
            Ring::new(
                &*self.state.as_ptr().cast::<State>(),
                std::slice::from_raw_parts(
                    self.records.as_ptr().cast::<AtomicU64>(),
                    self.slots * self.slot_words,
                ),
                self.slot_words,
            )
        }
    }

    /// Attaches the tap to an interface of this network namespace, before what is there.
    pub fn attach(&self, interface: &Interface, hook: Hook) -> libbpf_rs::Result<Attachment> {
        let programs = programs_on(interface, hook)?;
        if programs.iter().flatten().any(|name| name == TAP) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST).into());
        }
        let tap = match programs {
            Some(_) => self.attach_by_link(interface, hook),
            None => self.attach_by_filter(interface, hook),
        }?;
        // Behind the tap, which numbers frames from the first note on.
        let flushes = self.notes_flushes.then(|| self.follow_flushes()).transpose()?;
        Ok(Attachment { _flushes: flushes, _tap: tap })
    }

    fn follow_flushes(&self) -> io::Result<OwnedFd> {
        let fd = self.program(FLUSHED).as_fd().as_raw_fd();
        // SAFETY: the tracepoint's name is the program's; the descriptor is ours.
        unsafe {
            let link = libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), fd);
            Ok(OwnedFd::from_raw_fd(check(link)?))
        }
    }

    fn attach_by_link(&self, interface: &Interface, hook: Hook) -> libbpf_rs::Result<OnHook> {
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
            flags: libbpf_sys::BPF_F_BEFORE,
            ..Default::default()
        };
        let fd = self.program(TAP).as_fd().as_raw_fd();
        // SAFETY: `options` says its own size; the descriptor is ours.
        let link = unsafe {
            let options = &raw const options;
            let created = libbpf_sys::bpf_link_create(fd, interface.index, hook.tcx(), options);
            OwnedFd::from_raw_fd(check(created)?)
        };
        Ok(OnHook::Link { _link: link })
    }

    fn attach_by_filter(&self, interface: &Interface, hook: Hook) -> libbpf_rs::Result<OnHook> {
        let qdisc = Qdisc::ensure(interface.index)?;
        let mut hook = TcHookBuilder::new(self.program(TAP).as_fd())
            .ifindex(interface.index)
            .priority(PRIORITY)
            .handle(HANDLE)
            .hook(match hook {
                Hook::Ingress => TC_INGRESS,
                Hook::Egress => TC_EGRESS,
            });
        hook.attach()?;
        Ok(OnHook::Filter { hook, _qdisc: qdisc })
    }

    /// Time that the tap took, in nanoseconds, and how often it ran, while statistics were on
    /// (see [`enable_statistics`]).
    pub fn run_time(&self) -> io::Result<(u64, u64)> {
        run_time(&self.program(TAP))
    }

    /// What the statistics say, while they are on, that a program takes which does nothing: mean
    /// nanoseconds. So much of every program's time is the kernel reading its clock.
    pub fn floor(&self) -> io::Result<f64> {
        self.time_of(NOTHING)
    }

    /// The same of a program that reads the clock of the stamps.
    pub fn clock(&self) -> io::Result<f64> {
        self.time_of(ONLY_CLOCK)
    }

    fn time_of(&self, name: &str) -> io::Result<f64> {
        let program = self.program(name);
        // A frame as short as the kernel permits.
        let frame = [0; 64];
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            repeat: COMPARED_RUNS as i32,
            ..Default::default()
        };
        // SAFETY: pointer and length in `options` describe `frame`.
        check(unsafe {
            libbpf_sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &raw mut options)
        })?;
        let (time, runs) = run_time(&program)?;
        Ok(time as f64 / runs.max(1) as f64)
    }

    fn program(&self, name: &str) -> Loaded<'_> {
        let mut programs = self.object.progs();
        programs.find(|program| program.name() == name).expect("the object has this program")
    }
}

fn run_time(program: &Loaded<'_>) -> io::Result<(u64, u64)> {
    let info = program_info(program.as_fd().as_raw_fd())?;
    Ok((info.run_time_ns, info.run_cnt))
}

fn program_info(fd: i32) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: pointer and length describe `info`.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut len) })?;
    Ok(info)
}

/// The names of the programs on a tcx hook; none when the kernel does not know tcx (before 6.6).
fn programs_on(interface: &Interface, hook: Hook) -> io::Result<Option<Vec<String>>> {
    let mut ids = [0u32; MAX_PROGRAMS];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.prog_cnt = MAX_PROGRAMS as u32;
    // SAFETY: `options` describes `ids`; the kernel writes their number into the union.
    let answer = check(unsafe {
        libbpf_sys::bpf_prog_query_opts(interface.index, hook.tcx(), &raw mut options)
    });
    let count = match answer {
        // SAFETY: as above.
        Ok(_) => unsafe { options.__bindgen_anon_1.prog_cnt as usize },
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        Err(error) => return Err(error),
    };
    let name_of = |&id: &u32| -> io::Result<String> {
        // SAFETY: takes no pointers; the descriptor is ours.
        let program =
            unsafe { OwnedFd::from_raw_fd(check(libbpf_sys::bpf_prog_get_fd_by_id(id))?) };
        let info = program_info(program.as_raw_fd())?;
        let name = info.name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8);
        Ok(String::from_utf8_lossy(&name.collect::<Vec<_>>()).into_owned())
    };
    // One that is taken away meanwhile is none that bothers us.
    Ok(Some(ids[..count].iter().filter_map(|id| name_of(id).ok()).collect()))
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
    // Before the tap: dropped first, so that the tap sees every frame that was noted.
    /// The tracepoint that tells of XDP frames.
    _flushes: Option<OwnedFd>,
    _tap: OnHook,
}

/// A program on a hook.
#[derive(Debug)]
enum OnHook {
    /// By tcx. The kernel takes it away even when this process is killed.
    Link {
        /// The kernel's link.
        _link: OwnedFd,
    },
    /// By a filter of tc, on kernels before 6.6. It stays when this process is killed.
    Filter {
        /// The filter.
        hook: TcHook,
        // After the hook: dropped last.
        /// The queueing discipline that it hangs on.
        _qdisc: Qdisc,
    },
}

impl Drop for OnHook {
    fn drop(&mut self) {
        if let Self::Filter { hook, .. } = self {
            // Fails when the interface is gone, and the tap with it.
            let _ = hook.detach();
        }
    }
}

/// The clsact queueing discipline that tc programs hang on; removed again if it was made here.
#[derive(Debug)]
pub struct Qdisc {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::PacketSocket;
    use std::process::Command;

    /// What `command` prints, run in the network namespace of this thread.
    fn run(command: &str) -> String {
        let mut words = command.split(' ');
        let program = words.next().expect("a program");
        let output = Command::new(program).args(words).output().expect("it runs");
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Newer kernels have links and older ones filters; the older way must work on the newer ones.
    #[test]
    fn both_ways_of_attaching_stamp_and_leave_nothing() {
        // SAFETY: takes no pointers; only this thread moves to a namespace of its own.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            eprintln!("skipped: network namespaces and eBPF need root");
            return;
        }
        run("ip link add tt-a type veth peer name tt-b");
        run("ip link set tt-a up");
        run("ip link set tt-b up");
        let [sender, receiver] = ["tt-a", "tt-b"].map(|name| Interface::find_up(name).expect("up"));
        let socket = PacketSocket::sender(&sender, true).expect("a socket");
        for by_link in [true, false] {
            let program =
                Program::load(Verdict::Drop, Keep::Bytes(64), 16, Moment::Now).expect("loaded");
            let attach = if by_link { Program::attach_by_link } else { Program::attach_by_filter };
            let attachment = attach(&program, &receiver, Hook::Ingress).expect("attached");
            let before = program.ring().counters().head;
            for _ in 0..3 {
                socket.send(&[0x02; 60]).expect("sent");
            }
            assert!(program.ring().counters().head >= before + 3);
            assert_eq!(run("tc qdisc show dev tt-b").contains("clsact"), !by_link);
            drop(attachment);
            assert!(!run("tc qdisc show dev tt-b").contains("clsact"));
            let names = programs_on(&receiver, Hook::Ingress).expect("asked");
            assert_eq!(names.unwrap_or_default(), Vec::<String>::new());
        }
    }
}
