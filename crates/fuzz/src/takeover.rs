//! Messages of the other process in an online restart: the parser accepts or rejects any bytes without a panic, and an
//! accepted message is the same after it was written and parsed again.

use pgweir_core::takeover::{HEADER, Message, frame_len};

/// See the module.
pub fn run(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<HEADER>() {
        let _ = frame_len(*header);
    }
    // The length field is corrected, so that the parser reads the rest.
    let mut frame = bytes.to_vec();
    if frame.len() >= HEADER {
        let len = (frame.len() - HEADER + 1) as u32;
        frame[..4].copy_from_slice(&len.to_be_bytes());
    }
    if let Ok(message) = Message::of_frame(&frame) {
        let again = message.to_frame().expect("as short as before");
        assert!(Message::of_frame(&again).as_ref() == Ok(&message));
    }
}
