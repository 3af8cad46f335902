//! What the running kernel has of what the tracer looks at.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::CStr;
use std::fs;
use std::path::Path;

use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::btf::{Btf, BtfType};

const TYPES: &str = "/sys/kernel/btf";
/// The function by which a core is told that packets wait on it.
const OWN_FUNCTION: &str = "rps_trigger_softirq";

/// What the kernel calls the type of a tracepoint.
const TRACEPOINT: &[u8] = b"btf_trace_";

/// The tracepoints of the kernel and of its modules that have some of ours.
pub(super) struct Tracepoints(HashSet<Vec<u8>>);

impl Tracepoints {
    /// Reads them; none when the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF).
    pub(super) fn read() -> Option<Self> {
        let own = fs::read(Path::new(TYPES).join("vmlinux")).ok()?;
        let modules = ["kvm"].iter().filter_map(|name| fs::read(Path::new(TYPES).join(name)).ok());
        let mut found = HashSet::new();
        for types in [own].into_iter().chain(modules) {
            // Names stand in the table of strings, with zeros between.
            let names = types.split(|&byte| byte == 0).filter_map(|s| s.strip_prefix(TRACEPOINT));
            found.extend(names.map(<[u8]>::to_vec));
        }
        Some(Self(found))
    }

    /// Whether the kernel has the tracepoint of this name.
    pub(super) fn have(&self, tracepoint: &str) -> bool {
        self.0.contains(tracepoint.as_bytes())
    }
}

/// The distance from a core's `runqueues` to its `steal_time`, if the hypervisor is KVM and tells
/// what it takes.
pub(super) fn steal_offset() -> Option<i64> {
    if !hypervisor_tells() {
        return None;
    }
    let btf = Btf::from_vmlinux().ok()?;
    let mut places: BTreeMap<&str, i64> = BTreeMap::new();
    for section in btf.type_by_kind::<DataSec<'_>>() {
        for info in section.iter() {
            let variable = btf.type_by_id::<BtfType<'_>>(info.ty);
            let variable = variable.and_then(|kind| Var::try_from(kind).ok());
            let name = variable.as_ref().and_then(|variable| variable.name()?.to_str());
            if let Some(name) = ["runqueues", "steal_time"].into_iter().find(|&n| Some(n) == name) {
                places.insert(name, info.offset.into());
            }
        }
    }
    Some(places.get("steal_time")? - places.get("runqueues")?)
}

/// Whether the processor says that its hypervisor is KVM and counts the time that it takes
/// (Documentation/virt/kvm/x86/cpuid.rst), and nobody told the kernel to ignore that.
#[cfg(target_arch = "x86_64")]
fn hypervisor_tells() -> bool {
    const SIGNATURE: u32 = 0x4000_0000;
    const STEAL_TIME: u32 = 1 << 5;
    use std::arch::x86_64::__cpuid as cpuid;
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let found = cpuid(SIGNATURE);
    let name: Vec<u8> = [found.ebx, found.ecx, found.edx].map(u32::to_le_bytes).concat();
    name == b"KVMKVMKVM\0\0\0"
        && cpuid(SIGNATURE + 1).eax & STEAL_TIME != 0
        && !line.split_whitespace().any(|word| word == "no-steal-acc")
}

#[cfg(not(target_arch = "x86_64"))]
fn hypervisor_tells() -> bool {
    false
}

/// The release of the running kernel.
pub(super) fn release() -> String {
    // SAFETY: `name` is the memory that the kernel fills with strings that end.
    unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut name);
        CStr::from_ptr(name.release.as_ptr()).to_string_lossy().into_owned()
    }
}

/// The identity of this boot.
pub(super) fn boot_id() -> String {
    let read = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|id| id.trim().into()).unwrap_or_default()
}

/// The address of [`OWN_FUNCTION`]; 0 where it is not told.
pub(super) fn own_function() -> u64 {
    let mut found = 0;
    each_symbol(|address, name| {
        if name == OWN_FUNCTION {
            found = address;
        }
    });
    found
}

/// The names of functions.
pub(super) fn functions(addresses: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mut names = BTreeMap::new();
    each_symbol(|address, name| {
        if address != 0 && addresses.contains(&address) {
            names.entry(address).or_insert_with(|| name.to_owned());
        }
    });
    names
}

/// Calls `look` with every symbol that the kernel shows us; with addresses of 0 when it hides them.
fn each_symbol(mut look: impl FnMut(u64, &str)) {
    let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        if let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) {
            look(u64::from_str_radix(address, 16).unwrap_or(0), name);
        }
    }
}

/// The names of interrupts: what /proc/interrupts has behind the counts of the CPUs.
pub(super) fn irqs(numbers: &BTreeSet<u32>) -> BTreeMap<u32, String> {
    let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    names_of_irqs(&text, numbers)
}

fn names_of_irqs(text: &str, numbers: &BTreeSet<u32>) -> BTreeMap<u32, String> {
    let cpus = text.lines().next().map_or(0, |head| head.split_whitespace().count());
    let mut names = BTreeMap::new();
    for line in text.lines().skip(1) {
        let mut words = line.split_whitespace();
        let number = words.next().and_then(|word| word.trim_end_matches(':').parse().ok());
        // Behind the counts: the chip, the number within it, the devices.
        let rest: Vec<&str> = words.skip(cpus).collect();
        if let Some(number) = number.filter(|number| numbers.contains(number)) {
            let devices = if rest.len() > 2 { &rest[2..] } else { &rest[..] };
            names.insert(number, devices.join(" "));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_have_the_names_of_their_devices() {
        let text = "           CPU0       CPU1\n  \
                    4:          9          0   IO-APIC   4-edge      ttyS0\n \
                    24:          0         12  PCI-MSIX-0000:00:01.0   0-edge      virtio0-config, eth 0\n \
                    LOC:     1000       1000   Local timer interrupts\n";
        let names = names_of_irqs(text, &[4, 24].into());
        assert_eq!(names, [(4, "ttyS0".into()), (24, "virtio0-config, eth 0".into())].into());
    }

    #[test]
    fn the_kernel_says_what_it_has() {
        let Some(found) = Tracepoints::read() else { return eprintln!("skipped: no BTF") };
        assert!(found.have("sched_switch") && !found.have("sched_switc"));
    }
}
