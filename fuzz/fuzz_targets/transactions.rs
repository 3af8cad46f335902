//! Any bytes as one capture or two, of requests and answers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tailtap_fuzz::waits(bytes));
