//! pcapng captures of several interfaces, read through a buffer that does not hold them whole.

use std::path::Path;

use tailtap_analysis::capture::{Capture, CaptureError};

const ETHERNET: u32 = 1;
const COOKED_2: u32 = 276;
const RADIO: u32 = 127;

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &[0x1a2b_3c4d, 1, u32::MAX, u32::MAX].map(u32::to_le_bytes).concat())
}

fn interface(linktype: u32) -> Vec<u8> {
    block(1, &[linktype, 65535].map(u32::to_le_bytes).concat())
}

fn packet(interface: u32) -> Vec<u8> {
    let mut body = [interface, 0, 1_000_000, 60, 60].map(u32::to_le_bytes).concat();
    body.extend([2; 60]);
    block(6, &body)
}

/// A block that readers skip, longer than the buffer of a compressed file.
fn filler() -> Vec<u8> {
    block(0x0bad, &vec![0; 3 << 20])
}

/// Packets read, plain and compressed, or the refusal; both ways must agree.
fn read(file: &[u8]) -> Result<u64, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture");
    let all = |path: &Path| -> Result<u64, CaptureError> {
        let mut capture = Capture::open(path, None)?;
        while capture.read(1000, |_| ())? {}
        assert_eq!(capture.notes().damage, None);
        Ok(capture.notes().packets)
    };
    let text = |error: CaptureError| error.to_string();
    std::fs::write(&path, file).expect("writes");
    let plain = all(&path).map_err(text);
    std::fs::write(&path, zstd::encode_all(file, 1).expect("compresses")).expect("writes");
    assert_eq!(all(&path).map_err(text), plain);
    plain
}

#[test]
fn an_interface_that_is_not_read_does_not_hide_one_that_is() {
    let start = [section(), interface(RADIO), interface(ETHERNET)].concat();
    assert_eq!(read(&[start.clone(), filler(), packet(1)].concat()), Ok(1));
    assert_eq!(read(&[start.clone(), packet(0), filler(), packet(1)].concat()), Ok(1));
    assert_eq!(read(&[start.clone(), filler()].concat()), Ok(0));
    for file in [[start, packet(0), filler()].concat(), {
        let late = [filler(), interface(ETHERNET), packet(1)].concat();
        [section(), interface(RADIO), packet(0), late].concat()
    }] {
        let refusal = read(&file).expect_err("not read");
        assert!(refusal.contains("link type 127 (IEEE 802.11"), "{refusal}");
    }
}

#[test]
fn a_packet_says_where_it_was_captured_and_which_way_it_went() {
    let cooked = [&[8, 0, 0, 0, 0, 0, 0, 7, 0, 1, 4, 6][..], &[2; 8], &[0x45; 20]].concat();
    let enhanced = |interface: u32, bytes: &[u8], flags: u32| {
        let length = bytes.len() as u32;
        let head = [interface, 0, 1_000_000, length, length].map(u32::to_le_bytes).concat();
        // The option epb_flags, and the end of all options.
        let flags = [2 | 4 << 16, flags, 0].map(u32::to_le_bytes).concat();
        block(6, &[&head, bytes, &flags].concat())
    };
    let packets = [(1, 1), (1, 2), (1, 0), (0, 1)];
    let file = packets.map(|(interface, flags)| match interface {
        1 => enhanced(1, &[2; 60], flags),
        _ => enhanced(0, &cooked, flags),
    });
    let file = [section(), interface(COOKED_2), interface(ETHERNET), file.concat()].concat();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture");
    std::fs::write(&path, file).expect("writes");
    let mut found = Vec::new();
    let mut capture = Capture::open(&path, None).expect("opens");
    capture.read(10, |packet| found.push((packet.interface, packet.outgoing))).expect("reads");
    // The packet itself knows better than the file: it left through the system's interface 7.
    assert_eq!(found, [(1, Some(false)), (1, Some(true)), (1, None), (7, Some(true))]);
}

#[test]
fn interfaces_without_end_are_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture");
    let mut file = [section(), interface(ETHERNET), packet(0)].concat();
    (0..1 << 16).for_each(|_| file.extend(interface(ETHERNET)));
    std::fs::write(&path, file).expect("writes");
    let mut capture = Capture::open(&path, None).expect("opens");
    while capture.read(1000, |_| ()).expect("reads") {}
    assert_eq!(capture.notes().packets, 1);
    assert!(capture.notes().damage.as_ref().expect("damage").why.contains("interfaces"));
}
