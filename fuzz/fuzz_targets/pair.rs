//! Any bytes as two captures, evaluated with every kind of key.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tailtap_fuzz::pair(bytes));
