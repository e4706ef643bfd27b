//! Sends a request to the REST API of a member: `GET /cluster`, on a new connection.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1::Builder,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST},
};
use hyper_util::rt::TokioIo;
use pgweir_config::PatroniUrl;
use pgweir_core::shared::hosts::{ClusterReport, ReportError};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    task::{self, JoinHandle},
    time,
};
use tokio_rustls::TlsConnector;

use super::Access;

/// The maximum number of bytes of an answer's body.
const BODY_MAX: usize = 64 * 1024;
/// The maximum number of bytes of an answer's headers.
const HEADERS_MAX: usize = 16 * 1024;

/// Why a member has given no report.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// The name has no address, or no connection can be opened.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// The answer is not HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The request could not be written.
    #[error("{0}")]
    Request(#[from] hyper::http::Error),
    /// The answer has another status than 200. Redirects are not followed.
    #[error("it answers with status {0}")]
    Status(StatusCode),
    /// The body is cut off, or longer than 64 kB.
    #[error("the answer is cut off, or longer than {BODY_MAX} bytes")]
    Body,
    /// Patroni does not write such a body.
    #[error("{0}")]
    Report(ReportError),
    /// The answer took longer than `patroni_timeout`.
    #[error("no answer within {} s (patroni_timeout)", .0.as_secs_f64())]
    Timeout(Duration),
    /// The look-up of the name for an earlier request has not ended yet.
    #[error("the look-up of its name has not ended")]
    Lookup,
    /// The URL begins with `https`, and no authorities are set.
    #[error("patroni_tls_ca_file is not set")]
    NoAuthorities,
}

/// Ends a task when this value is dropped.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A member of a cluster.
pub(super) struct Member {
    url: PatroniUrl,
    /// The look-up of the host's name. A look-up can't be aborted, so the next one begins only after this one has
    /// ended.
    lookup: Option<JoinHandle<io::Result<Vec<SocketAddr>>>>,
}

impl Member {
    pub(super) fn new(url: PatroniUrl) -> Self {
        Self { url, lookup: None }
    }

    pub(super) fn url(&self) -> &PatroniUrl {
        &self.url
    }

    /// Asks the member for its cluster.
    ///
    /// # Errors
    /// The member does not answer in time, or its answer is not usable.
    pub(super) async fn ask(
        &mut self,
        access: &Access,
        timeout: Duration,
    ) -> Result<ClusterReport, AskError> {
        let asked = time::timeout(timeout, self.ask_until_answered(access)).await;
        asked.unwrap_or(Err(AskError::Timeout(timeout)))
    }

    async fn ask_until_answered(&mut self, access: &Access) -> Result<ClusterReport, AskError> {
        let addresses = self.addresses().await?;
        let stream = TcpStream::connect(&*addresses).await?;
        let body = if self.url.is_tls {
            let tls = access.tls.as_ref().ok_or(AskError::NoAuthorities)?;
            let name = ServerName::try_from(self.url.host.clone()).map_err(io::Error::other)?;
            let connector = TlsConnector::from(Arc::clone(tls));
            let stream = connector.connect(name, stream).await?;
            self.get(stream, access).await?
        } else {
            self.get(stream, access).await?
        };
        ClusterReport::parse(&body).map_err(AskError::Report)
    }

    async fn addresses(&mut self) -> Result<Vec<SocketAddr>, AskError> {
        if self
            .lookup
            .as_ref()
            .is_some_and(|lookup| !lookup.is_finished())
        {
            return Err(AskError::Lookup);
        }
        let (host, port) = (self.url.host.clone(), self.url.port);
        let lookup = self.lookup.insert(task::spawn_local(async move {
            Ok(lookup_host((host, port)).await?.collect())
        }));
        Ok(lookup.await.map_err(io::Error::other)??)
    }

    async fn get(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        access: &Access,
    ) -> Result<Bytes, AskError> {
        let mut builder = Builder::new();
        builder.max_buf_size(HEADERS_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        // If the connection fails, `send_request` returns the error.
        let _connection = AbortOnDrop(task::spawn_local(async move { drop(connection.await) }));
        let mut request = Request::get(format!("{}/cluster", self.url.path))
            .header(HOST, self.url.authority())
            .header(ACCEPT, "application/json")
            .header(CONNECTION, "close");
        if let Some(authorization) = &access.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let answer = sender
            .send_request(request.body(Empty::<Bytes>::new())?)
            .await?;
        if answer.status() != StatusCode::OK {
            return Err(AskError::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
        Ok(body.map_err(|_| AskError::Body)?.to_bytes())
    }
}
