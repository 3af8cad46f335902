//! Any bytes as a frame, and the keys of its packet.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tailtap_fuzz::packet(bytes));
