use super::super::{
    Pairs, PinRecord, ServerPassword, ServerRecord, SessionRecord, StatementRecord,
};
use super::*;
use crate::{Address, Endpoint, TlsFacts, pool::PoolKey};

/// A generator of random numbers that are the same in each run.
struct RandomBytes(u64);

impl RandomBytes {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = (self.0.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.roll(40) as usize;
        (0..len).map(|_| self.roll(256) as u8).collect()
    }

    fn text(&mut self) -> String {
        format!("näme {}", self.roll(1000))
    }

    fn pairs(&mut self) -> Pairs {
        let count = self.roll(4);
        (0..count).map(|_| (self.bytes(), self.bytes())).collect()
    }

    fn flag(&mut self) -> bool {
        self.roll(2) == 1
    }

    fn address(&mut self) -> Address {
        match self.roll(3) {
            0 => Address::Unix,
            1 => Address::Tcp(([127, 0, 0, 1], self.roll(65_536) as u16).into()),
            _ => Address::Tcp(([0, 0, 0, 0, 0, 0, 0, 1], self.roll(65_536) as u16).into()),
        }
    }

    fn note(&mut self) -> ListenNote {
        match self.roll(5) {
            0 => ListenNote::Notification(self.bytes()),
            1 => ListenNote::Fence,
            2 => ListenNote::Fenced,
            3 => ListenNote::Lost(self.text()),
            _ => ListenNote::Done,
        }
    }

    fn record(&mut self) -> ClientRecord {
        let session = SessionRecord {
            base: self.pairs(),
            wanted: self.pairs(),
            implied: self.pairs(),
            sql: self.pairs(),
            has_sequences: self.flag(),
            is_unproven: self.flag(),
        };
        ClientRecord {
            id: self.roll(1 << 31),
            names: PoolKey {
                database: self.text().into(),
                user: self.text().into(),
            },
            remote: self.address(),
            local: self.address(),
            port: self.roll(65_536) as u16,
            same_uid: self.flag(),
            process: self.roll(1 << 31) as u32,
            key_pid: self.roll(1 << 31) as u32,
            key_secret: vec![self.roll(256) as u8; [4, 32][self.roll(2) as usize]],
            age: self.roll(1 << 31),
            ready_was_sent: self.flag(),
            tracked: self.pairs(),
            session: self.flag().then_some(session),
            statements: self.statements(),
            unnamed: self.flag().then(|| self.bytes()),
            early: self.bytes(),
            partial: vec![b'Q'; self.roll(5) as usize],
            server_password: self.flag().then(|| ServerPassword {
                text: String::from("word").into(),
                is_md5: self.flag(),
                is_checked: self.flag(),
            }),
            server_keys: self.flag().then_some([[3; 32], [4; 32]]),
            server: self.flag().then(|| self.server()),
            tls: self.flag().then(|| self.facts()),
            channels: (0..self.roll(3)).map(|_| self.bytes()).collect(),
        }
    }

    fn server(&mut self) -> ServerRecord {
        ServerRecord {
            id: self.roll(1 << 31),
            endpoint: match self.flag() {
                true => Endpoint::Unix(self.text()),
                false => Endpoint::Tcp {
                    host: self.text(),
                    port: self.roll(65_536) as u16,
                },
            },
            local: self.address(),
            remote: self.address(),
            key_pid: self.roll(1 << 31) as u32,
            key_secret: self.bytes(),
            age: self.roll(1 << 31),
            tracked: self.pairs(),
            needs_reset: self.flag(),
            tls: self.flag().then(|| self.facts()),
            at_login: self.flag().then(|| (self.bytes(), self.pairs())),
            statements: self.statements(),
            pinned: self.flag().then(|| Box::new(self.pin())),
        }
    }

    fn facts(&mut self) -> TlsFacts {
        TlsFacts {
            protocol: self.text().into(),
            cipher: self.text().into(),
            group: self.flag().then(|| self.text().into()),
            peer: None,
            end_point: None,
            is_agreed: false,
        }
    }

    fn state(&mut self) -> TlsState {
        TlsState(self.bytes().into())
    }

    fn statements(&mut self) -> Vec<StatementRecord> {
        let count = self.roll(4);
        let statement = |random: &mut Self| StatementRecord {
            name: random.bytes(),
            id: random.roll(1 << 31),
            definition: random.bytes(),
        };
        (0..count).map(|_| statement(self)).collect()
    }

    fn pin(&mut self) -> PinRecord {
        PinRecord {
            pins: self.roll(1 << 12) as u16,
            age: self.roll(1 << 31),
            by: self.flag().then(|| (self.roll(1 << 31), self.text())),
            sequences_kept: self.roll(256) as u8,
            effects: self.roll(1 << 31) as u32,
            facts: self.roll(1 << 14) as u16,
            held: self.pairs(),
            sql: self.pairs(),
            prepared: self.pairs(),
            strings_at_login: self.flag().then(|| self.bytes()),
        }
    }

    fn pool(&mut self) -> PoolNote {
        PoolNote {
            database: self.text(),
            user: self.text(),
            held: self.roll(100) as u32,
            lent: self.roll(100) as u32,
            keys: self.flag().then_some([[1; 32], [2; 32]]),
        }
    }

    fn message(&mut self) -> Message {
        match self.roll(13) {
            0 => Message::Hello {
                version: self.roll(65_536) as u16,
                program: self.text(),
            },
            1 => Message::Refused(self.text()),
            2 => Message::Offer {
                pid: self.roll(1 << 31) as u32,
                generation: self.roll(256) as u8,
                listeners: vec![
                    ListenerNote {
                        is_lent: self.flag()
                    };
                    self.roll(5) as usize
                ],
            },
            3 => Message::Ready,
            4 => Message::Begin(Begin {
                next_id: self.roll(1 << 31),
                last_statement: self.roll(1 << 31),
                process_key: [self.roll(256) as u8; 32],
                is_paused: self.flag(),
                paused: vec![self.text(); self.roll(3) as usize],
                disabled: vec![self.text(); self.roll(3) as usize],
                pools: (0..self.roll(4)).map(|_| self.pool()).collect(),
            }),
            5 => Message::Up {
                pid: self.roll(1 << 31) as u32,
            },
            6 => Message::Client {
                record: Box::new(self.record()),
                unsent: self.bytes(),
                encryption: Encryption {
                    client: self.flag().then(|| self.state()),
                    server: self.flag().then(|| self.state()),
                },
                early: self.bytes(),
            },
            7 => Message::Received(self.roll(1 << 31)),
            8 => Message::Held(self.pool()),
            9 => Message::Want(self.pool()),
            10 => Message::Lend(self.pool()),
            11 => Message::Listen {
                pid: self.roll(1 << 31) as u32,
                secret: self.bytes(),
                note: self.note(),
            },
            _ => Message::Cancel {
                pid: self.roll(1 << 31) as u32,
                secret: self.bytes(),
            },
        }
    }
}

#[test]
fn written_messages_are_parsed_to_the_same() {
    let mut random = RandomBytes(1);
    for _ in 0..2000 {
        let message = random.message();
        let frame = message.to_frame().expect("short enough");
        let header = *frame.first_chunk().expect("a header");
        assert_eq!(frame_len(header), Ok(frame.len()));
        assert!(
            Message::of_frame(&frame).as_ref() == Ok(&message),
            "{message:?}"
        );
    }
}

#[test]
fn a_damaged_message_never_ends_the_process() {
    let mut random = RandomBytes(2);
    for _ in 0..2000 {
        let mut frame = random.message().to_frame().expect("short enough");
        let short = random.roll(frame.len() as u64) as usize;
        assert!(Message::of_frame(&frame[..short]).is_err());
        let at = random.roll(frame.len() as u64) as usize;
        frame[at] ^= 1 << random.roll(8);
        let _ = Message::of_frame(&frame);
    }
    assert_eq!(
        Message::of_frame(&[0, 0, 0, 1, 99]),
        Err(BadFrame::Kind(99))
    );
    assert_eq!(frame_len([0, 0, 0, 0, 1]), Err(BadFrame::Short));
    assert_eq!(frame_len([255, 0, 0, 0, 1]), Err(BadFrame::Long));
}

#[test]
fn unknown_fields_are_skipped_or_refused_by_their_tag() {
    let plus = |tag: u8| {
        let mut frame = Message::Ready.to_frame().expect("short enough");
        frame.extend_from_slice(&[tag, 0, 0, 0, 1, 7]);
        frame[3] += 6;
        Message::of_frame(&frame)
    };
    assert_eq!(plus(0x81), Ok(Message::Ready));
    assert_eq!(plus(0x7f), Err(BadFrame::Unknown(0x7f)));
}

#[test]
fn no_client_without_a_key() {
    let mut record = RandomBytes(3).record();
    record.key_secret = vec![1; 3];
    let message = Message::Client {
        record: Box::new(record),
        unsent: Vec::new(),
        encryption: Encryption {
            client: Some(TlsState(b"hidden".to_vec().into())),
            server: None,
        },
        early: Vec::new(),
    };
    let frame = message.to_frame().expect("short enough");
    assert_eq!(Message::of_frame(&frame), Err(BadFrame::Value(10)));
}

#[test]
fn no_secret_in_debug_output() {
    let mut random = RandomBytes(4);
    let mut record = random.record();
    record.tracked = vec![(b"app.key".to_vec(), b"hidden".to_vec())];
    assert!(!format!("{record:?}").contains("hidden"));
    let message = Message::Client {
        record: Box::new(record),
        unsent: Vec::new(),
        encryption: Encryption {
            client: Some(TlsState(b"hidden".to_vec().into())),
            server: None,
        },
        early: Vec::new(),
    };
    assert_eq!(format!("{message:?}"), "Message(7)");
}
