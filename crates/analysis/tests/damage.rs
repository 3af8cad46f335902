//! Whatever bytes a file holds, evaluating it ends in a result or an error, never in a panic.

use std::path::Path;

use proptest::prelude::*;
use tailtap_analysis::evaluate::{Evaluation, Options, evaluate};
use tailtap_analysis::stamps::{Clock, Header, Stamp, TapCounts};

const PACKETS: u32 = 40;

/// A 60-byte frame with a UDP payload in MoonSniff's layout.
fn frame(id: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; 60];
    bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    bytes[23] = 17;
    bytes[42..46].copy_from_slice(&id.to_le_bytes());
    bytes[46] = 0x55;
    bytes
}

fn time(id: u32, delay: u32) -> u32 {
    1_000_000 + id * 10_000 + delay
}

fn pcap(delay: u32) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for id in 0..PACKETS {
        for word in [7, time(id, delay), 60, 60] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame(id));
    }
    file
}

fn pcapng(delay: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = body.len() as u32 + 12;
        file.extend([kind, length].map(u32::to_le_bytes).concat());
        file.extend(body);
        file.extend(length.to_le_bytes());
    };
    let section = [0x1a2b_3c4d, 1, u32::MAX, u32::MAX].map(u32::to_le_bytes).concat();
    block(0x0a0d_0d0a, &section);
    block(1, &[1, 65535].map(u32::to_le_bytes).concat());
    for id in 0..PACKETS {
        let mut body = [0, 0, time(id, delay), 60, 60].map(u32::to_le_bytes).concat();
        body.extend(frame(id));
        block(6, &body);
    }
    file
}

fn mscap(delay: u32) -> Vec<u8> {
    let record = |id: u32| {
        let mut bytes = u64::from(time(id, delay)).to_le_bytes().to_vec();
        bytes.extend(id.to_le_bytes());
        bytes
    };
    (0..PACKETS).flat_map(record).collect()
}

fn stamps(delay: u32) -> Vec<u8> {
    let stored = u64::from(PACKETS);
    let counts = Some(TapCounts { seen: stored, stored, lost: 0, other: 0 });
    let header = Header { clock: Clock::Monotonic, counts, link: "link".into() };
    let record = |id| Stamp { time_ns: u64::from(time(id, delay)), id, frame_len: 60 }.encode();
    header.encode().into_iter().chain((0..PACKETS).flat_map(record)).collect()
}

fn compressed(file: &[u8], how: usize) -> Vec<u8> {
    match how {
        0 => file.to_vec(),
        1 => zstd::encode_all(file, 1).expect("compresses"),
        _ => {
            use std::io::Write;
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(file).expect("compresses");
            encoder.finish().expect("compresses")
        }
    }
}

/// Evaluates the two files; a refusal must be one line.
fn run(folder: &Path, ingress: &[u8], egress: &[u8], key: Option<&str>) -> Option<Evaluation> {
    let (before, after) = (folder.join("in.mscap"), folder.join("out.mscap"));
    std::fs::write(&before, ingress).expect("writes");
    std::fs::write(&after, egress).expect("writes");
    let key = key.map(|key| key.parse().expect("a key"));
    match evaluate(&before, &after, &Options { key, ..Options::default() }, &|| false) {
        Ok(evaluation) => Some(evaluation),
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            None
        }
    }
}

const KEYS: [Option<&str>; 4] = [None, Some("moonsniff"), Some("signature"), Some("42:4:le")];
const WRITERS: [fn(u32) -> Vec<u8>; 4] = [pcap, pcapng, mscap, stamps];

#[test]
fn undamaged_files_are_evaluated() {
    let folder = tempfile::tempdir().expect("a folder");
    for write in WRITERS {
        for how in 0..3 {
            let (before, after) = (compressed(&write(0), how), compressed(&write(700), how));
            let found = run(folder.path(), &before, &after, None).expect("evaluates");
            assert_eq!(found.counts.matched, u64::from(PACKETS));
            assert!(found.warnings.is_empty(), "{:?}", found.warnings);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn damaged_files_never_panic(
        kind in 0..4usize,
        how in 0..3usize,
        key in 0..4usize,
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
        swapped in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = WRITERS[kind](700);
        // Damage to the packets, before compression, finds more than damage to its envelope.
        for (at, byte) in &damage {
            let at = at.index(file.len());
            file[at] = *byte;
        }
        let mut file = compressed(&file, how);
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len() + 1));
        }
        let whole = WRITERS[kind](0);
        let (before, after) = if swapped { (&file, &whole) } else { (&whole, &file) };
        if let Some(found) = run(folder.path(), before, after, KEYS[key]) {
            let counts = found.counts;
            prop_assert_eq!([counts.entered(), counts.left()], [counts.ingress, counts.egress]);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        magic in 0..6usize,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let magics: [&[u8]; 6] = [
            b"",
            b"\x4d\x3c\xb2\xa1\x02\x00\x04\x00\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0",
            b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a",
            b"\x89TTSTMP\n\x01\0\x10\0",
            b"\x28\xb5\x2f\xfd",
            b"\x1f\x8b\x08",
        ];
        let file = [magics[magic], &bytes].concat();
        run(folder.path(), &pcap(0), &file, None);
        run(folder.path(), &file, &pcap(700), Some("42:4:le"));
    }
}
