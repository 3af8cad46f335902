//! Compiles the eBPF programs, so that the finished module needs neither clang nor headers.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// Where the programs are, seen from this crate.
const SOURCES: &str = "../../bpf";
const PROGRAMS: [&str; 4] = ["tap", "hardware", "redirect", "trace"];
/// Those that are compiled a second time, for kernels before Linux 5.12: see bpf/ring.h.
const RESERVING: [&str; 2] = ["tap", "trace"];

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let out = PathBuf::from(variable("OUT_DIR"));
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed={SOURCES}");
    if variable("CARGO_CFG_TARGET_ENDIAN") != "little" {
        fail("the stamp ring is little-endian, and so must be the target");
    }
    let plain = PROGRAMS.map(|program| (program, "", None));
    let reserving = RESERVING.map(|program| (program, "-reserve", Some("-DRESERVE")));
    for (program, suffix, define) in plain.into_iter().chain(reserving) {
        compile(
            &Path::new(SOURCES).join(format!("{program}.bpf.c")),
            &out.join(format!("{program}{suffix}.bpf.o")),
            define,
            // The headers of the libbpf that is linked, from libbpf-sys.
            &variable("DEP_BPF_INCLUDE"),
            &variable("CARGO_CFG_TARGET_ARCH"),
        );
    }
}

fn compile(source: &Path, object: &Path, define: Option<&str>, include: &str, arch: &str) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // `-target bpf` does not look into the folders where Debian keeps asm/types.h: of this
    // architecture, and of another one (linux-libc-dev-arm64-cross). -mcpu=v3 has compare and
    // exchange.
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"])
        .arg(format!("-D__TARGET_ARCH_{}", kernel_arch(arch)))
        .args(define)
        .args(["-I", include])
        .args(["-idirafter", &format!("/usr/include/{arch}-linux-gnu")])
        .args(["-idirafter", &format!("/usr/{arch}-linux-gnu/include")])
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(_) => fail(&format!(
            "{clang} cannot compile {} (Debian: apt-get install clang linux-libc-dev)",
            source.display()
        )),
        Err(error) => fail(&format!(
            "cannot run {clang}, which compiles the eBPF programs: {error} (Debian: apt-get \
             install clang; another compiler: set CLANG)"
        )),
    }
    // DWARF is three quarters of the object and nobody reads it; BTF stays. Without llvm-strip
    // the object is larger and works the same.
    let _ = Command::new("llvm-strip").arg("-g").arg(object).status();
}

/// What libbpf's headers call an architecture of cargo's.
fn kernel_arch(arch: &str) -> &str {
    match arch {
        "x86_64" | "x86" => "x86",
        "aarch64" => "arm64",
        other => other,
    }
}

fn fail(message: &str) -> ! {
    println!("cargo:warning={message}");
    eprintln!("error: {message}");
    exit(1);
}
