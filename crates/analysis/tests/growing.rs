//! Captures that are still being written are evaluated up to their end, with a warning.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use tailtap_analysis::evaluate::{Evaluation, Options, evaluate};
use tailtap_analysis::stamps::{Clock, Header, Stamp, TapCounts};

const PACKETS: u32 = 6000;
/// Packets that are in the file when it is opened.
const FIRST: usize = 2000;

/// A capture as its header and its records.
type Parts = (Vec<u8>, Vec<Vec<u8>>);

fn time(id: u32, delay: u32) -> u32 {
    1_000_000 + id * 10_000 + delay
}

fn pcap(delay: u32) -> Parts {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let record = |id: u32| {
        let mut frame = vec![0u8; 60];
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[23] = 17;
        frame[42..46].copy_from_slice(&id.to_le_bytes());
        frame[46] = 0x55;
        let header: Vec<u8> = words(&[7, time(id, delay), 60, 60]);
        [header, frame].concat()
    };
    let header = words(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, 65535, 1]);
    (header, (0..PACKETS).map(record).collect())
}

fn stamps(delay: u32, counts: Option<TapCounts>) -> Parts {
    let header = Header { clock: Clock::Monotonic, counts, link: "link".into() };
    let record = |id| Stamp { time_ns: u64::from(time(id, delay)), id, frame_len: 60 }.encode();
    (header.encode().to_vec(), (0..PACKETS).map(|id| record(id).to_vec()).collect())
}

fn whole((header, records): &Parts) -> Vec<u8> {
    [header.clone(), records.concat()].concat()
}

/// Evaluates a pair whose second capture begins as `start`, while `further` is appended to it as
/// soon as packets are being matched.
fn evaluate_growing(ingress: &[u8], start: &[u8], further: &[u8]) -> Evaluation {
    let folder = tempfile::tempdir().expect("a folder");
    let (before, after) = (folder.path().join("in"), folder.path().join("out"));
    std::fs::write(&before, ingress).expect("writes");
    std::fs::write(&after, start).expect("writes");
    let append = |path: &Path| OpenOptions::new().append(true).open(path).expect("opens");
    let growing = Mutex::new(Some(append(&after)));
    let grow = || {
        if let Some(mut file) = growing.lock().expect("no panic").take() {
            File::write_all(&mut file, further).expect("writes");
        }
        false
    };
    evaluate(&before, &after, &Options::default(), &grow).expect("evaluates")
}

fn codes(found: &Evaluation) -> Vec<&str> {
    found.warnings.iter().map(|warning| warning.code).collect()
}

#[test]
fn a_pcap_that_grows_is_evaluated_up_to_where_it_ended() {
    let (ingress, (header, records)) = (whole(&pcap(0)), pcap(700));
    let start = [header, records[..FIRST].concat()].concat();
    let found = evaluate_growing(&ingress, &start, &records[FIRST..].concat());
    assert_eq!(codes(&found)[0], "capture-growing");
    let counts = found.counts;
    assert!(counts.matched >= FIRST as u64, "{counts:?}");
    assert_eq!(counts.matched + counts.outside_ingress, u64::from(PACKETS));
    let behind = codes(&found).contains(&"outside-common-time");
    assert_eq!((behind, counts.lost), (counts.outside_ingress > 0, 0));
    let message = &found.warnings[0].message;
    let sizes = format!("from {} to {} bytes", start.len(), start.len() + 76 * 4000);
    assert!(message.contains("grew") && message.contains(&sizes), "{message}");
}

#[test]
fn an_end_in_mid_record_says_so() {
    let (ingress, (header, records)) = (whole(&pcap(0)), pcap(700));
    let start = [header, records[..FIRST].concat(), records[FIRST][..30].to_vec()].concat();
    let found = evaluate_growing(&ingress, &start, &[]);
    assert_eq!(codes(&found), ["capture-damaged", "outside-common-time"]);
    assert_eq!((found.counts.matched, found.counts.outside_ingress), (2000, 4000));
    let message = &found.warnings[0].message;
    assert!(message.contains("ends in mid-record, 30 bytes into it"), "{message}");
    let outside = &found.warnings[1].message;
    assert!(outside.contains("ends 0.039999 s earlier than"), "{outside}");
}

#[test]
fn the_stamps_of_a_running_tap_are_evaluated() {
    let ingress = whole(&stamps(0, None));
    let (header, records) = stamps(700, None);
    let start = [header, records[..FIRST].concat()].concat();
    let found = evaluate_growing(&ingress, &start, &records[FIRST..].concat());
    assert_eq!(codes(&found)[..3], ["tap-unclosed", "capture-growing", "tap-unclosed"]);
    assert!(found.counts.matched >= FIRST as u64);
}

#[test]
fn compressed_captures_that_grow_are_evaluated() {
    let (ingress, egress) = (whole(&pcap(0)), whole(&pcap(700)));
    let gzip = || {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&egress).expect("compresses");
        encoder.finish().expect("compresses")
    };
    for file in [gzip(), zstd::encode_all(&egress[..], 1).expect("compresses")] {
        let (start, further) = file.split_at(file.len() * 9 / 10);
        let found = evaluate_growing(&ingress, start, further);
        assert!(codes(&found).contains(&"capture-growing"), "{:?}", found.warnings);
        assert!(found.counts.matched > 1000, "{:?}", found.counts);
        let counts = found.counts;
        assert_eq!(counts.matched + counts.outside_ingress, u64::from(PACKETS));
    }
}

#[test]
fn all_that_a_cut_stream_holds_is_read() {
    let (ingress, egress) = (whole(&pcap(0)), whole(&pcap(700)));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut other = zstd::Encoder::new(Vec::new(), 1).expect("compresses");
    // What was flushed can be had, whatever follows.
    let (first, rest) = egress.split_at(24 + 76 * FIRST);
    for part in [first, &rest[..5000]] {
        encoder.write_all(part).expect("compresses");
        encoder.flush().expect("flushes");
        other.write_all(part).expect("compresses");
        other.flush().expect("flushes");
    }
    for file in [encoder.get_ref(), other.get_ref()] {
        let found = evaluate_growing(&ingress, file, &[]);
        assert_eq!(codes(&found), ["capture-damaged", "outside-common-time"]);
        assert_eq!(found.counts.matched, FIRST as u64 + 5000 / 76);
        let message = &found.warnings[0].message;
        assert!(message.contains("ends in mid-stream"), "{message}");
    }
}

#[test]
fn a_capture_that_is_cut_off_while_it_is_read_ends_there() {
    const STAMPS: u32 = 5_000_000;
    const LEFT: u64 = 60 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let (before, after) = (folder.path().join("in"), folder.path().join("out"));
    for (path, delay) in [(&before, 0), (&after, 700)] {
        let header = Header { clock: Clock::Monotonic, counts: None, link: "link".into() };
        let record = |id: u32| {
            let time_ns = u64::from(id) * 1_000 + delay;
            Stamp { time_ns, id, frame_len: 60 }.encode()
        };
        let records = (0..STAMPS).flat_map(record);
        std::fs::write(path, header.encode().into_iter().chain(records).collect::<Vec<_>>())
            .expect("writes");
    }
    let file = Mutex::new(Some(OpenOptions::new().write(true).open(&after).expect("opens")));
    let cut_off = || {
        if let Some(file) = file.lock().expect("no panic").take() {
            file.set_len(LEFT).expect("cuts");
        }
        false
    };
    let options = Options { window_ns: 1_000_000, ..Options::default() };
    let found = evaluate(&before, &after, &options, &cut_off).expect("evaluates");
    let left = (LEFT - 64) / 16;
    assert_eq!((found.counts.matched, found.counts.egress), (left, left));
    let shrank = found.warnings.iter().find(|warning| warning.code == "capture-growing");
    assert!(shrank.is_some_and(|warning| warning.message.contains("shrank from 80000064 to")));
}
