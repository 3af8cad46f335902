//! Any bytes as a compressed capture.
//!
//! Checksums and entropy coding let few mutations through. Three in four are therefore made to
//! what the stream holds, which is compressed again.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use tailtap_fuzz::{compress, decompress};

/// Longest content that is changed: what it compresses to fits into libFuzzer's inputs.
const CONTENT: usize = 16 << 10;

fuzz_target!(|bytes: &[u8]| tailtap_fuzz::compressed(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if let Some((how, mut content)) = decompress(&data[..size], CONTENT)
        && !seed.is_multiple_of(4)
    {
        let length = content.len();
        content.resize(CONTENT, 0);
        let length = fuzzer_mutate(&mut content, length, CONTENT);
        let file = compress(&content[..length], how);
        if file.len() <= max_size {
            data[..file.len()].copy_from_slice(&file);
            return file.len();
        }
    }
    fuzzer_mutate(data, size, max_size)
});
