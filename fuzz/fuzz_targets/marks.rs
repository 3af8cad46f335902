//! Any bytes as a capture in the format marks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailtap_analysis::capture::Format;

fuzz_target!(|bytes: &[u8]| tailtap_fuzz::capture(bytes, Format::Marks));
