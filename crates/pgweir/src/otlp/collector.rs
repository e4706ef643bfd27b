//! Requests to a collector: one at a time, on a connection that stays open in between.

use std::{io, time::Duration};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    client::conn::http1::{SendRequest, handshake},
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use pgweir_config::Collector;
use tokio::{net::TcpStream, task, time};

/// The largest number of bytes of an answer that are read.
const ANSWER_MAX: usize = 64 * 1024;

/// The reason why a collector has not taken a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    /// No connection can be opened.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// The connection has failed, or the answer is not HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The request could not be written.
    #[error("{0}")]
    Request(#[from] hyper::http::Error),
    /// The collector has refused it.
    #[error("it answers with status {0}")]
    Status(StatusCode),
    /// The answer took longer than `otlp_timeout`.
    #[error("no answer within {} s (otlp_timeout)", .0.as_secs_f64())]
    Timeout(Duration),
}

/// The connection to a collector.
#[derive(Debug, Default)]
pub(crate) struct CollectorClient {
    open: Option<(Collector, SendRequest<Full<Bytes>>)>,
}

impl CollectorClient {
    /// Sends a message to one of a collector's paths.
    ///
    /// # Errors
    /// The collector has not taken the message.
    pub(crate) async fn post(
        &mut self,
        collector: &Collector,
        path: &str,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<(), ExportError> {
        let sent = time::timeout(timeout, self.post_again(collector, path, body.into())).await;
        let sent = sent.unwrap_or(Err(ExportError::Timeout(timeout)));
        if sent.is_err() {
            self.open = None;
        }
        sent
    }

    /// Sends the message on the open connection or, if the collector has closed that one, on another.
    async fn post_again(
        &mut self,
        collector: &Collector,
        path: &str,
        body: Bytes,
    ) -> Result<(), ExportError> {
        let open = self.open.take().filter(|(to, _)| to == collector);
        if let Some((_, sender)) = open
            && !sender.is_closed()
        {
            match self.post_on(sender, collector, path, body.clone()).await {
                Err(ExportError::Http(_)) => {}
                outcome => return outcome,
            }
        }
        let stream = TcpStream::connect((&*collector.host, collector.port)).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The task ends when the sender is dropped. A failure makes the request fail.
        task::spawn_local(async move { drop(connection.await) });
        self.post_on(sender, collector, path, body).await
    }

    async fn post_on(
        &mut self,
        mut sender: SendRequest<Full<Bytes>>,
        collector: &Collector,
        path: &str,
        body: Bytes,
    ) -> Result<(), ExportError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", collector.path))
            .header(HOST, collector.authority())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(body))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let rest = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        if rest.is_ok() {
            self.open = Some((collector.clone(), sender));
        }
        match status.is_success() {
            true => Ok(()),
            false => Err(ExportError::Status(status)),
        }
    }
}
