//! From io_uring to epoll, when the kernel refuses a request.

use std::{
    fs::OpenOptions,
    os::{
        fd::AsFd,
        unix::{fs::OpenOptionsExt, net::UnixListener},
    },
};

use pgweir_core::Endpoint;

use super::*;
use crate::net::poller::Key;

/// A worker with a ring, or `None` if the kernel allows none. Then there is nothing to test.
pub(super) fn world_with_ring() -> Option<World> {
    let counts = Arc::default();
    if let Err(error) = Ring::new(8, &counts) {
        eprintln!("not tested: {error}");
        return None;
    }
    let ring = || Some(Box::new(Ring::new(8, &counts).expect("a ring")));
    Some(World::with_rings(1, 16 * 1024, ring))
}

pub(super) fn is_ring(world: &World) -> bool {
    world.drivers[0].io.poller.is_ring()
}

fn is_receiving(world: &mut World, token: Token) -> bool {
    let ring = &mut world.drivers[0].io.poller.ring;
    ring.as_mut()
        .is_some_and(|ring| ring.is_receiving(Key::Connection(token)))
}

/// Makes the kernel refuse a request of the next wait.
fn make_refuse(world: &mut World) {
    let unwatchable = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open("/")
        .expect("the root");
    let Some(ring) = &mut world.drivers[0].io.poller.ring else {
        panic!("epoll already")
    };
    ring.watch(unwatchable.as_fd(), Key::Closing(77), false)
        .expect("queued");
    // The request is submitted while the descriptor is open.
    ring.wait(Some(0)).expect("submitted");
}

/// Makes each call of this thread's ring fail from now on, as a kernel without memory does.
#[allow(unsafe_code, reason = "no crate of this workspace wraps seccomp")]
pub(super) fn forbid_calls() {
    let number = libc::SYS_io_uring_enter as u32;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32;
    let step = |code: u32, jumps: (u8, u8), k: u32| libc::sock_filter {
        code: code as u16,
        jt: jumps.0,
        jf: jumps.1,
        k,
    };
    // Loads the number of the call, and compares it.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), number),
        step(libc::BPF_RET | libc::BPF_K, (0, 0), refuse),
        step(libc::BPF_RET | libc::BPF_K, (0, 0), libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the filter is complete, and lives during the call, which copies it. It holds for this thread alone.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Connects to a server, whose bytes the kernel receives after some short messages.
fn received_from(world: &mut World) -> (TempDir, UnixStream) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("bind");
    world.answer(|conn, seen, out| {
        if *seen == Seen::Connected {
            out.list.push(Action::Read {
                conn,
                mode: ReadMode::Deliver,
            });
        }
    });
    world.act(Action::Connect {
        conn: FIRST,
        endpoint: Arc::new(Endpoint::Unix(path.display().to_string())),
    });
    world.until(|seen| seen.contains(&Seen::Connected));
    let (mut server, _) = listener.accept().expect("accept");
    for length in 1..=10 {
        write(&mut server, b"x");
        world.until(|seen| received(seen).len() == length);
    }
    world.settle();
    assert!(is_receiving(world, FIRST));
    world.drivers[0].pooler.seen.clear();
    (folder, server)
}

#[test]
fn bytes_that_were_received_are_kept_in_their_order() {
    let Some(mut world) = world_with_ring() else {
        return;
    };
    let (_folder, mut server) = received_from(&mut world);
    write(&mut server, b"one ");
    make_refuse(&mut world);
    write(&mut server, b"two ");
    world.turns();
    assert!(!is_ring(&world));
    write(&mut server, b"three");
    world.until(|seen| received(seen) == b"one two three");
    let source_of = |out: &mut Actions| send(FIRST, b"answer", out);
    let driver = &mut world.drivers[0];
    driver.call(|_, _, out| source_of(out));
    driver.settle();
    assert_eq!(read_exactly(&mut server, 6), b"answer");
    drop(server);
    world.until(|seen| seen.iter().any(|one| matches!(one, Seen::Closed(_))));
}

#[test]
fn bytes_that_core_does_not_want_yet_are_kept() {
    let Some(mut world) = world_with_ring() else {
        return;
    };
    let (_folder, mut server) = received_from(&mut world);
    write(&mut server, b"early");
    world.mode(ReadMode::Hold);
    world.settle();
    make_refuse(&mut world);
    world.settle();
    assert!(!is_ring(&world));
    assert_eq!(received(&world.seen()), b"");
    write(&mut server, b" late");
    world.mode(ReadMode::Deliver);
    world.until(|seen| received(seen) == b"early late");
}

#[test]
fn clients_stay_and_new_ones_are_accepted() {
    let Some(mut world) = world_with_ring() else {
        return;
    };
    let mut client = world.client();
    world.answer(echo);
    world.mode(ReadMode::Deliver);
    write(&mut client, b"before");
    world.until(|seen| received(seen) == b"before");
    world.turns();
    assert_eq!(read_exactly(&mut client, 6), b"before");
    make_refuse(&mut world);
    world.turns();
    assert!(!is_ring(&world));
    write(&mut client, b"after");
    world.until(|seen| received(seen) == b"beforeafter");
    assert_eq!(read_exactly(&mut client, 5), b"after");
    world.drivers[0].pooler.seen.clear();
    let _another = world.client();
    assert_eq!(world.drivers[0].io.table.len(), 2);
}

#[test]
fn no_client_is_dropped_when_no_request_can_be_cancelled() {
    let Some(mut world) = world_with_ring() else {
        return;
    };
    let (_folder, mut server) = received_from(&mut world);
    write(&mut server, b"one ");
    forbid_calls();
    write(&mut server, b"two ");
    world.turns();
    assert!(!is_ring(&world));
    write(&mut server, b"three");
    world.until(|seen| received(seen).ends_with(b"one two three"));
    let closed = |one: &Seen| matches!(one, Seen::Closed(_));
    assert!(!world.seen().iter().any(closed));
}

#[test]
fn clients_are_accepted_when_nothing_can_be_cancelled() {
    let Some(mut world) = world_with_ring() else {
        return;
    };
    let mut clients = vec![world.client()];
    forbid_calls();
    world.turns();
    assert!(!is_ring(&world));
    // The kernel may end the ring's watch of the listening socket later.
    while clients.len() < 9 {
        world.drivers[0].pooler.seen.clear();
        clients.push(world.client());
        assert_eq!(world.drivers[0].io.table.len(), clients.len());
    }
}

#[test]
fn a_server_moves_with_its_bytes_when_nothing_can_be_cancelled() {
    let Some(mut world) = world_with_ring() else {
        return;
    };
    let (_folder, mut server) = received_from(&mut world);
    write(&mut server, b"early");
    forbid_calls();
    let (moved, mut bytes) = world.drivers[0].io.detach(FIRST).expect("open");
    assert!(moved.output.failed.is_none());
    let mut socket = UnixStream::from(moved.fd);
    let missing = b"early".len() - bytes.len();
    bytes.extend(read_exactly(&mut socket, missing));
    assert_eq!(bytes, b"early");
    world.turns();
    assert!(!is_ring(&world));
}
