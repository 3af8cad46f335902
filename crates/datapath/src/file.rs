//! Files that are written: none of them through a link.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Creates a file, or empties the one that is there. Devices and pipes are opened as they are.
///
/// A link is an error (ELOOP): in a folder that others can write to it may lead anywhere. Those of
/// the kernel, such as `/dev/stdout`, lead to what the process has open.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let kernels = ["/dev", "/dev/fd", "/proc/self/fd"].map(Path::new);
    let follow = path.parent().is_some_and(|folder| kernels.contains(&folder));
    let flags = if follow { 0 } else { libc::O_NOFOLLOW };
    OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(path)
}

/// The file of this number in a row of files: `x.pcap` as `x-00001.pcap`.
pub(crate) fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number:05}"));
    if let Some(suffix) = path.extension() {
        name.push(".");
        name.push(suffix);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_link_is_not_followed_but_devices_are_opened() {
        let folder = std::env::temp_dir().join(format!("tailtap-file-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("makes a folder");
        let (canary, link) = (folder.join("canary"), folder.join("link"));
        std::fs::write(&canary, "sings").expect("writes");
        std::os::unix::fs::symlink(&canary, &link).expect("links");
        let error = create(&link).expect_err("refuses");
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        assert_eq!(std::fs::read(&canary).expect("reads"), b"sings");
        create(&canary).and_then(|mut file| file.write_all(b"new")).expect("replaces");
        for device in ["/dev/null", "/dev/fd/2"] {
            create(Path::new(device)).expect("opens");
        }
        std::fs::remove_dir_all(&folder).expect("removes");
    }
}
