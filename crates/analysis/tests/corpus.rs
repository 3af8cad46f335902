//! The inputs of the fuzz targets that are kept in `fuzz/corpus`, once each.

#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use tailtap_analysis::capture::Format;

/// Feeds all inputs of a target to it, and says which one it was if one fails.
fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("a corpus") {
        let input = Input(entry.expect("an entry").path());
        check(&fs::read(&input.0).expect("readable"));
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

/// The path of an input, shown when the check of it panics.
struct Input(PathBuf);

impl Drop for Input {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input is {}", self.0.display());
        }
    }
}

#[test]
fn pcap() {
    replay("pcap", |bytes| targets::capture(bytes, Format::Pcap));
}

#[test]
fn pcapng() {
    replay("pcapng", |bytes| targets::capture(bytes, Format::Pcapng));
}

#[test]
fn erf() {
    replay("erf", |bytes| targets::capture(bytes, Format::Erf));
}

#[test]
fn mscap() {
    replay("mscap", |bytes| targets::capture(bytes, Format::Mscap));
}

#[test]
fn stamps() {
    replay("stamps", |bytes| targets::capture(bytes, Format::Stamps));
}

#[test]
fn marks() {
    replay("marks", |bytes| targets::capture(bytes, Format::Marks));
}

#[test]
fn compressed() {
    replay("compressed", targets::compressed);
}

#[test]
fn packet() {
    replay("packet", targets::packet);
}

#[test]
fn pair() {
    replay("pair", targets::pair);
}

#[test]
fn transactions() {
    replay("transactions", targets::waits);
}
