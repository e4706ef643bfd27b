//! A client of the simple protocol, without a password.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::stage::postgres;

/// The time that a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Logs the load's user in to a database.
///
/// # Errors
///
/// The message of the side that refused.
pub(super) async fn log_in(port: u16, database: &str) -> Result<TcpStream, String> {
    let mut client = TcpStream::connect(("127.0.0.1", port))
        .await
        .map_err(|e| format!("connect: {e}"))?;
    let mut body = 196_608_u32.to_be_bytes().to_vec(); // protocol 3.0
    for word in [
        "user",
        postgres::NAME,
        "database",
        database,
        "application_name",
        "bench",
        "",
    ] {
        body.extend_from_slice(word.as_bytes());
        body.push(0);
    }
    ask(&mut client, &message(&[], &body)).await?;
    Ok(client)
}

/// Sends a request and reads up to ReadyForQuery.
///
/// # Errors
///
/// The message of an ErrorResponse, or the way in which the connection ended.
pub(super) async fn ask(client: &mut TcpStream, request: &[u8]) -> Result<(), String> {
    let sent = client.write_all(request).await;
    sent.map_err(|e| format!("write: {e}"))?;
    until_ready(client).await
}

/// Returns a message; a startup packet has no tag.
pub(super) fn message(tag: &[u8], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [tag, &length.to_be_bytes(), body].concat()
}

/// Reads messages up to ReadyForQuery.
async fn until_ready(client: &mut TcpStream) -> Result<(), String> {
    let work = async {
        let mut unread = Vec::new();
        let mut buffer = [0; 2048];
        loop {
            while let Some(end) = message_end(&unread) {
                match unread[0] {
                    b'Z' => return Ok(()),
                    b'E' => return Err(String::from_utf8_lossy(&unread[5..end]).replace('\0', " ")),
                    b'R' if unread[5..end] != [0; 4] => return Err("asked for a password".into()),
                    _ => unread.drain(..end),
                };
            }
            match client.read(&mut buffer).await {
                Ok(0) => return Err("the connection was closed".to_owned()),
                Ok(count) => unread.extend_from_slice(&buffer[..count]),
                Err(e) => return Err(format!("read: {e}")),
            }
        }
    };
    match timeout(PATIENCE, work).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

fn message_end(unread: &[u8]) -> Option<usize> {
    let length = unread.get(1..5)?.try_into().ok().map(u32::from_be_bytes)?;
    let end = usize::try_from(length).ok()?.checked_add(1)?;
    (end >= 5 && unread.len() >= end).then_some(end)
}
