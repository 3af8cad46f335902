//! Loads the eBPF programs that are compiled from `bpf/`, and attaches them to interfaces.
//!
//! An object goes through three steps: [`Compiled::open`], changes of constants and maps that must
//! come before the kernel sees them, and [`Opened::load`]. Its programs are then attached by name
//! ([`Loaded::attach`]). Every step fails with a [`BpfError`].

mod attach;
mod bell;
mod classic;
mod cost;
mod filter;
mod redirection;
mod rings;
mod verdict;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::LazyLock;

use libbpf_rs::{
    AsRawLibbpf, ErrorKind, Map, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder,
    OpenObject, Program,
};
use libbpf_sys::bpf_insn;
use memmap2::{MmapOptions, MmapRaw};

use crate::cpu::check;
use crate::interface::Interface;

pub(crate) use attach::{Attachment, Place, busy, programs_on};
pub use attach::{Hook, XdpMode};
pub(crate) use bell::Bell;
pub(crate) use classic::{CHOICES, DIFFERS, MATCHES, translate};
pub use classic::{Classic, FilterError};
pub(crate) use cost::enable_statistics;
pub(crate) use redirection::Redirection;
pub(crate) use rings::Rings;

/// An object file that `build.rs` made.
pub(crate) struct Compiled {
    /// What its main program is called in messages.
    what: &'static str,
    /// What it needs of the machine.
    needs: &'static str,
    bytes: &'static [u8],
    /// The same for kernels before Linux 5.12: see bpf/ring.h.
    reserving: Option<&'static [u8]>,
}

/// libelf wants whole words.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

macro_rules! compiled {
    ($name:literal) => {{
        static OBJECT: &Aligned<[u8]> =
            &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")));
        &OBJECT.0
    }};
}

/// Stamps packets on a link, or keeps their first bytes.
pub(crate) static TAP: Compiled = Compiled {
    what: "the tap's program",
    needs: "Linux 5.8 or later",
    bytes: compiled!("tap"),
    reserving: Some(compiled!("tap-reserve")),
};
/// Reads the stamps of a network card.
pub(crate) static HARDWARE: Compiled = Compiled {
    what: "the XDP program that reads stamps",
    needs: "Linux 6.3 and a driver with XDP",
    bytes: compiled!("hardware"),
    reserving: None,
};
/// Sends packets out of another interface.
static REDIRECT: Compiled = Compiled {
    what: "the XDP program that redirects packets",
    needs: "Linux 5.9 or later with CONFIG_BPF_SYSCALL",
    bytes: compiled!("redirect"),
    reserving: None,
};

/// Follow what the kernel does on chosen cores.
pub(crate) static TRACE: Compiled = Compiled {
    what: "the tracer's programs",
    needs: "CONFIG_DEBUG_INFO_BTF, and was tried on Linux 5.10, 6.1, 6.12 and 6.18",
    bytes: compiled!("trace"),
    reserving: Some(compiled!("trace-reserve")),
};

/// Whether the kernel lets programs exchange words (Linux 5.12), as far as we may ask it.
fn exchanges() -> bool {
    /// r0 = 0; *(u64 *)(r10 - 8) = r0; r0 = xchg(r10 - 8, r0); exit.
    const EXCHANGE: [u64; 4] = [0xb7, 0xfff8_0a7b, 0xe1_fff8_0adb, 0x95];
    static KNOWN: LazyLock<bool> = LazyLock::new(|| {
        // SAFETY: name and options may be null; the descriptor that comes back is ours.
        let loaded = check(unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
                std::ptr::null(),
                c"GPL".as_ptr(),
                EXCHANGE.as_ptr().cast(),
                EXCHANGE.len() as _,
                std::ptr::null_mut(),
            )
        });
        // SAFETY: as above.
        let loaded = loaded.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        !loaded.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
    });
    #[cfg(test)]
    if tests::OLD.get() {
        return false;
    }
    *KNOWN
}

/// Whether the kernel takes what tap and tracer are made of, as far as we may ask it.
pub fn takes_programs() -> bool {
    // SAFETY: takes no pointers but for options, which may be null.
    let reserves = || unsafe {
        libbpf_sys::libbpf_probe_bpf_map_type(libbpf_sys::BPF_MAP_TYPE_RINGBUF, std::ptr::null())
    };
    exchanges() || reserves() > 0
}

/// An eBPF program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The privilege is missing.
    #[error(
        "the kernel does not permit eBPF programs: run as root (or with CAP_BPF and \
         CAP_NET_ADMIN); if this is root, the limit of locked memory (`ulimit -l`), the kernel's \
         verifier or a sandbox is in the way"
    )]
    NotPermitted,
    /// No memory for the maps.
    #[error("the kernel has no memory for {what}: free some, or ask for a smaller buffer")]
    Memory {
        /// The program.
        what: &'static str,
    },
    /// The program was refused.
    #[error("the kernel refused {what} (it needs {needs}): {reason}")]
    Refused {
        /// The program.
        what: &'static str,
        /// What it needs.
        needs: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// Another program is attached.
    #[error("interface {name} has {place} already{remedy}")]
    Busy {
        /// The interface.
        name: String,
        /// What is there.
        place: &'static str,
        /// How it is removed, after a colon; empty where another of our programs does it.
        remedy: String,
    },
    /// A filter cannot be used.
    #[error("{0}")]
    Filter(#[from] FilterError),
    /// The program could not be attached.
    #[error("interface {name} takes no {place}: {reason}{remedy}")]
    Attach {
        /// The interface.
        name: String,
        /// What it does not take.
        place: &'static str,
        /// What the kernel said.
        reason: String,
        /// What may help, after a colon; empty if nothing is known.
        remedy: &'static str,
    },
}

impl BpfError {
    /// Whether another option, or ending another program, would mend it, and not another machine.
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Filter(_))
    }
}

impl Compiled {
    /// Opens the object; the kernel does not see it yet.
    pub(crate) fn open(&'static self) -> Result<Opened, BpfError> {
        // Errors reach the user through our own messages.
        verdict::listen();
        let reserving = self.reserving.filter(|_| !exchanges());
        let object = ObjectBuilder::default().open_memory(reserving.unwrap_or(self.bytes));
        let object = object.map_err(|error| self.refused(error))?;
        Ok(Opened { object, compiled: self, reserving: reserving.is_some() })
    }

    /// The error of a step that belongs to loading.
    pub(crate) fn refused(&self, error: impl Into<libbpf_rs::Error>) -> BpfError {
        let error = error.into();
        match error.kind() {
            ErrorKind::PermissionDenied => BpfError::NotPermitted,
            ErrorKind::OutOfMemory => BpfError::Memory { what: self.what },
            _ => {
                BpfError::Refused { what: self.what, needs: self.needs, reason: error.to_string() }
            }
        }
    }
}

/// An object whose constants and maps can still be changed.
pub(crate) struct Opened {
    object: OpenObject,
    compiled: &'static Compiled,
    /// Whether its programs reserve their slots.
    reserving: bool,
}

impl Opened {
    /// Sets the object's constants, which are words.
    pub(crate) fn set_constants(&mut self, words: &[u32]) {
        let mut maps = self.object.maps_mut();
        let mut map = maps
            .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
            .expect("the object has constants");
        let constants = map.initial_value_mut().expect("constants have values");
        for (bytes, word) in constants.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// Sets how many entries a map has, and of how many bytes if that is not as it was compiled.
    pub(crate) fn size_map(
        &mut self,
        name: &str,
        entries: u32,
        value_size: Option<u32>,
    ) -> Result<(), BpfError> {
        let mut maps = self.object.maps_mut();
        let mut map = maps.find(|map| map.name() == name).expect("the object has this map");
        let sized = map
            .set_max_entries(entries)
            .and_then(|()| value_size.map_or(Ok(()), |size| map.set_value_size(size)));
        sized.map_err(|error| self.compiled.refused(error))
    }

    /// The names of all programs, with those of the sections that they are in.
    pub(crate) fn programs(&self) -> Vec<(String, String)> {
        let text = |name: &OsStr| name.to_string_lossy().into_owned();
        self.object.progs().map(|program| (text(program.name()), text(program.section()))).collect()
    }

    /// Leaves a program out.
    pub(crate) fn leave_out(&mut self, name: &str) {
        let mut programs = self.object.progs_mut();
        let program = programs.find(|program| program.name() == name);
        program.expect("the object has this program").set_autoload(false);
    }

    /// Gives a program other instructions. They may name maps that exist already.
    pub(crate) fn replace(
        &mut self,
        name: &str,
        instructions: &mut [bpf_insn],
    ) -> Result<(), BpfError> {
        let mut programs = self.object.progs_mut();
        let program = programs.find(|program| program.name() == name);
        let program = program.expect("the object has this program").as_libbpf_object();
        // SAFETY: the program is open and not loaded; pointer and length describe the instructions, of
        // which libbpf makes a copy.
        let code = unsafe {
            libbpf_sys::bpf_program__set_insns(
                program.as_ptr(),
                instructions.as_mut_ptr(),
                instructions.len() as _,
            )
        };
        match code {
            0 => Ok(()),
            code => Err(self.compiled.refused(io::Error::from_raw_os_error(-code))),
        }
    }

    /// Binds all programs to an interface, which gives them its metadata.
    pub(crate) fn bind(&mut self, interface: &Interface) {
        for mut program in self.object.progs_mut() {
            program.set_ifindex(interface.index as u32);
            program.set_flags(libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY);
        }
    }

    /// Hands the programs to the kernel, which checks them.
    pub(crate) fn load(self) -> Result<Loaded, BpfError> {
        let Self { object, compiled, .. } = self;
        let Compiled { what, needs, .. } = *compiled;
        verdict::take();
        let object = object.load().map_err(|error| match verdict::take() {
            Some(reason) => BpfError::Refused { what, needs, reason },
            None => compiled.refused(error),
        })?;
        Ok(Loaded { object, compiled })
    }
}

/// An object whose programs can be attached.
pub(crate) struct Loaded {
    object: Object,
    compiled: &'static Compiled,
}

/// What a map is made with that has nothing special.
fn map_options() -> libbpf_sys::bpf_map_create_opts {
    libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    }
}

/// Programs that another one goes on with. They stay there for as long as this is open.
#[derive(Debug)]
pub(crate) struct Choices(MapHandle);

impl Choices {
    /// Room for so many.
    pub(crate) fn new(compiled: &Compiled, count: u32) -> Result<Self, BpfError> {
        let word = size_of::<u32>() as u32;
        MapHandle::create(MapType::ProgArray, Some("choices"), word, word, count, &map_options())
            .map(Self)
            .map_err(|error| compiled.refused(error))
    }

    /// The number by which instructions name them.
    pub(crate) fn fd(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }

    /// Puts a program to a place.
    pub(crate) fn put(&self, place: i32, loaded: &Loaded, program: &str) -> Result<(), BpfError> {
        let fd = loaded.program(program).as_fd().as_raw_fd();
        let put = self.0.update(&place.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY);
        put.map_err(|error| loaded.refused(error))
    }
}

impl Loaded {
    /// The program of this name.
    fn program(&self, name: &str) -> Program<'_> {
        let mut programs = self.object.progs();
        programs.find(|program| program.name() == name).expect("the object has this program")
    }

    /// The map whose name ends so: libbpf puts the object's name before those of sections.
    pub(crate) fn map(&self, name: &str) -> Map<'_> {
        let mut maps = self.object.maps();
        let map = maps.find(|map| map.name().to_string_lossy().ends_with(name));
        map.expect("the object has this map")
    }

    /// The memory of a map, shared with the kernel.
    pub(crate) fn map_memory(&self, name: &str, len: usize) -> Result<MmapRaw, BpfError> {
        let map = self.map(name);
        let memory = MmapOptions::new().len(len).map_raw(map.as_fd().as_raw_fd());
        memory.map_err(|error| self.refused(error))
    }

    /// See [`Compiled::refused`].
    pub(crate) fn refused(&self, error: impl Into<libbpf_rs::Error>) -> BpfError {
        self.compiled.refused(error)
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("what", &self.compiled.what).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// Whether this thread has programs for kernels before Linux 5.12.
        pub(crate) static OLD: Cell<bool> = const { Cell::new(false) };
    }
}
