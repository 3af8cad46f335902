//! Whether the kernel reports system calls to an audit daemon: `AUDIT_GET`; include/uapi/linux/audit.h.

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_AUDIT};

const AUDIT_GET: u16 = 1000;

/// The request, which has no content, and of the answer (`struct audit_status`) what is asked.
struct Status {
    enabled: u32,
}

impl NetlinkSerializable for Status {
    fn message_type(&self) -> u16 {
        AUDIT_GET
    }

    fn buffer_len(&self) -> usize {
        0
    }

    fn serialize(&self, _buffer: &mut [u8]) {}
}

impl NetlinkDeserializable for Status {
    type Error = DecodeError;

    fn deserialize(_header: &NetlinkHeader, content: &[u8]) -> Result<Self, DecodeError> {
        // Behind the mask.
        match content.get(4..8).and_then(|word| word.try_into().ok()) {
            Some(word) => Ok(Self { enabled: u32::from_ne_bytes(word) }),
            None => Err("the kernel's answer is too short".into()),
        }
    }
}

/// 0 when nothing is reported, 1 when it is, 2 when that cannot be changed any more.
pub fn enabled() -> io::Result<u32> {
    let asked = NetlinkPayload::InnerMessage(Status { enabled: 0 });
    let mut request = NetlinkMessage::new(NetlinkHeader::default(), asked);
    request.header.flags = NLM_F_REQUEST;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    let socket = Socket::new(NETLINK_AUDIT)?;
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match NetlinkMessage::<Status>::deserialize(&answer).map_err(io::Error::other)?.payload {
        NetlinkPayload::InnerMessage(status) => Ok(status.enabled),
        NetlinkPayload::Error(error) => Err(error.into()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
