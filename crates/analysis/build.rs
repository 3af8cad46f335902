//! Makes the kinds of a trace's records from the list that the tracer's programs are compiled with.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// The list, seen from this crate.
const KINDS: &str = "../../bpf/trace_kinds.h";

fn main() {
    println!("cargo:rerun-if-changed={KINDS}");
    let text = fs::read_to_string(KINDS).unwrap_or_else(|error| panic!("{KINDS}: {error}"));
    let (mut constants, mut names) = (String::new(), String::new());
    for line in text.lines().filter_map(|line| line.strip_prefix("KIND(")) {
        let parts = line.split_once(") /* ").and_then(|(kind, words)| {
            let [name, number, called] = kind.split(", ").collect::<Vec<_>>()[..] else {
                return None;
            };
            Some((name, number, called, words.strip_suffix(" */")?))
        });
        let (name, number, called, words) = parts.unwrap_or_else(|| panic!("{KINDS}: {line}"));
        writeln!(constants, "/// {words}\npub const {name}: u8 = {number};").expect("a string");
        writeln!(names, "({name}, {called}),").expect("a string");
    }
    let all = format!("/// Each with its name.\npub const ALL: &[(u8, &str)] = &[{names}];\n");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("kinds.rs"), constants + &all).expect("cargo's folder can be written");
}
