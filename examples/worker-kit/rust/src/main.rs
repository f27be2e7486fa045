// SPDX-License-Identifier: Apache-2.0

//! A worker of the kit in Rust, on a generated client: a task for each prompt in flight. ../README.md says what it does.
//!
//!     cargo run -- --model bible prompts.jsonl

mod metrics;
mod options;

use metrics::{Metrics, METRICS};
use options::Options;
use pb::sequences_client::SequencesClient;
use pb::sessions_client::SessionsClient;
use serde_json::{json, Value};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::{mpsc, watch, Mutex};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

#[allow(dead_code)] // the parts of the protocol that this worker does not use
mod pb {
    tonic::include_proto!("npugraph.v1");
}

const PROMPT_MAX: usize = 1 << 20; // bytes of a line
const PAUSE_MIN: Duration = Duration::from_millis(100); // before the second try; each further pause is twice as long
const PAUSE_MAX: Duration = Duration::from_secs(5);

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Worker {
    options: Options,
    draining: watch::Receiver<bool>,
    session: Mutex<Option<Arc<Session>>>, // locked while connecting: one slot connects, the others wait
}

/// A session of the daemon, which all slots share. It ends with its stream, when the last one drops it.
struct Session {
    calls: SequencesClient<Channel>,
    id: String,
    token: Vec<u8>,
    lost: Arc<AtomicBool>,
    _requests: mpsc::Sender<pb::SessionRequest>, // the stream ends when this is dropped
}

impl Session {
    /// A request that names the session.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("npugraph-session", self.id.parse().expect("a number"));
        metadata.insert_bin("npugraph-session-token-bin", tonic::metadata::MetadataValue::from_bytes(&self.token));
        request
    }
}

/// Bounds a call, or a message of a stream.
async fn limited<T>(limit: Duration, call: impl std::future::Future<Output = Result<T, Status>>) -> Result<T, Status> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")))
}

/// The daemon's sentence and its stable reason.
fn explain(status: &Status) -> (String, String) {
    let reason = status.metadata().get("npugraph-reason").and_then(|reason| reason.to_str().ok());
    (status.message().into(), reason.map_or_else(|| format!("{:?}", status.code()), Into::into))
}

impl Worker {
    /// Waits for work to end; None if the worker drains before.
    async fn unless_drained<T>(&self, work: impl std::future::Future<Output = T>) -> Option<T> {
        let mut draining = self.draining.clone();
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => None,
            done = work => Some(done),
        }
    }

    /// Waits before the next try: at random between half of the pause and all of it, so that workers that were refused
    /// together do not come back together. None if the worker drains.
    async fn pause(&self, tries: u32) -> Option<()> {
        let whole = PAUSE_MAX.min(PAUSE_MIN * (1 << tries.min(10)));
        let random = RandomState::new().hash_one(tries) as f64 / u64::MAX as f64; // each state has keys of its own
        self.unless_drained(tokio::time::sleep(whole.mul_f64(0.5 + random / 2.0))).await
    }

    // ---- the connection ----

    async fn channel(&self) -> Result<Channel, Error> {
        let options = &self.options;
        let Some(ca) = &options.ca else {
            let scheme = if options.address.starts_with("unix:") { "" } else { "http://" };
            return Ok(Endpoint::from_shared(format!("{scheme}{}", options.address))?.connect().await?);
        };
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(ca)?));
        if let (Some(cert), Some(key)) = (&options.cert, &options.key) {
            tls = tls.identity(Identity::from_pem(std::fs::read(cert)?, std::fs::read(key)?));
        }
        Ok(Endpoint::from_shared(format!("https://{}", options.address))?.tls_config(tls)?.connect().await?)
    }

    /// The token of the file $NPUGRAPH_TOKEN_FILE, which is read for each session, since short-lived tokens are replaced in
    /// place. It is not sent to another machine in the clear.
    fn bearer(&self) -> Result<Option<String>, Error> {
        let Some(path) = std::env::var("NPUGRAPH_TOKEN_FILE").ok().filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let address = &self.options.address;
        let host = address.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
        let near = address.starts_with("unix:") || host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if self.options.ca.is_none() && !near {
            return Err("a token is sent to another machine only with TLS: give --ca".into());
        }
        Ok(Some(std::fs::read_to_string(path)?.trim().into()))
    }

    /// Opens a session and sees that the model is there: a daemon that was started again has to load it first.
    async fn connect(&self) -> Result<Session, Error> {
        let token = self.bearer()?;
        let channel = self.channel().await?;
        let (requests, stream) = mpsc::channel(1);
        let open = pb::SessionOpen { client_name: "worker.rs".into(), ..Default::default() };
        requests.send(pb::SessionRequest { kind: Some(pb::session_request::Kind::Open(open)) }).await?;
        let mut call = Request::new(ReceiverStream::new(stream));
        if let Some(token) = token {
            call.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?); // later calls have that of their session
        }
        let mut events = SessionsClient::new(channel.clone()).open(call).await?.into_inner();
        let Some(pb::SessionEvent { kind: Some(pb::session_event::Kind::Opened(opened)) }) = events.message().await? else {
            return Err("the daemon opened no session".into());
        };
        let (id, token) = (opened.session.to_string(), opened.token);
        let calls = SequencesClient::new(channel);
        let session = Session { calls, id, token, lost: Arc::default(), _requests: requests };
        let lost = session.lost.clone();
        tokio::spawn(async move {
            while let Ok(Some(_)) = events.message().await {} // what the daemon says meanwhile is advice
            lost.store(true, Relaxed);
        });
        let name = self.options.model.clone();
        session.calls.clone().list_models(session.request(pb::ListModelsRequest { name })).await.map_err(|status| explain(&status).0)?;
        Ok(session)
    }

    /// Returns the session, once there is one; None if the worker drains meanwhile.
    async fn session(&self) -> Option<Arc<Session>> {
        let mut current = self.session.lock().await;
        let mut tries = 0;
        loop {
            if let Some(session) = current.as_ref().filter(|session| !session.lost.load(Relaxed)) {
                return Some(session.clone());
            }
            let attempt = tokio::time::timeout(self.options.timeout, self.connect());
            match self.unless_drained(attempt).await? {
                Ok(Ok(session)) => {
                    METRICS.connects.fetch_add(1, Relaxed);
                    eprintln!("worker: connected, session {}", session.id);
                    *current = Some(Arc::new(session));
                    continue;
                }
                Ok(Err(error)) => eprintln!("worker: not connected: {error}"),
                Err(_) => eprintln!("worker: not connected: no answer in time"),
            }
            self.pause(tries).await?;
            tries += 1;
        }
    }

    // ---- a prompt ----

    /// Generates a text from its beginning.
    async fn generate(&self, session: &Session, prompt: Vec<i32>) -> Result<(Vec<i32>, &'static str), Status> {
        let (options, begin) = (&self.options, Instant::now());
        let _in_flight = METRICS.enter();
        let mut calls = session.calls.clone();
        let model = options.model.clone();
        let open = pb::OpenRequest { model, prompt, sampling: Some(options.sampling.clone()), ..Default::default() };
        let sequence = limited(options.timeout, calls.open(session.request(open))).await?.into_inner().sequence;
        let text = self.follow(session, sequence, begin).await;
        // A lost session has closed it.
        let _ = limited(options.timeout, calls.close(session.request(pb::CloseRequest { sequence }))).await;
        text
    }

    async fn follow(&self, session: &Session, sequence: u64, begin: Instant) -> Result<(Vec<i32>, &'static str), Status> {
        let (limit, mut text, mut finish) = (self.options.timeout, Vec::new(), "");
        let generate = pb::GenerateRequest { sequence, max_tokens: self.options.tokens, ..Default::default() };
        let mut calls = session.calls.clone();
        let mut stream = limited(limit, calls.generate(session.request(generate))).await?.into_inner();
        while let Some(reply) = limited(limit, stream.message()).await? {
            if text.is_empty() && !reply.tokens.is_empty() {
                METRICS.count_first(begin.elapsed());
            }
            METRICS.tokens.fetch_add(reply.tokens.len() as u64, Relaxed);
            finish = match reply.finish() {
                pb::FinishReason::Length => "length",
                pb::FinishReason::Stop => "stop",
                pb::FinishReason::Context => "context",
                pb::FinishReason::Unspecified => "",
            };
            text.extend(reply.tokens);
        }
        Ok((text, finish))
    }

    /// Tries until the prompt is answered; None if the worker drains before.
    async fn answer(&self, index: u64, ids: Vec<i32>) -> Option<()> {
        for tries in 0.. {
            let session = self.session().await?;
            let status = match self.generate(&session, ids.clone()).await {
                Ok((text, finish)) => {
                    write(json!({"index": index, "tokens": text, "finish": finish}));
                    METRICS.done.fetch_add(1, Relaxed);
                    return Some(());
                }
                Err(status) => status,
            };
            let (message, reason) = explain(&status);
            match status.code() {
                Code::InvalidArgument | Code::PermissionDenied | Code::OutOfRange | Code::Unimplemented => {
                    refuse(index, &reason, &message);
                    return Some(());
                }
                Code::ResourceExhausted => {} // the session is good
                _ => session.lost.store(true, Relaxed),
            }
            eprintln!("worker: prompt {index} again: {message} [{reason}]");
            METRICS.retries.fetch_add(1, Relaxed);
            drop(session);
            self.pause(tries).await?;
        }
        None
    }

    async fn slot(&self, prompts: &Mutex<mpsc::Receiver<(u64, Option<Vec<i32>>)>>) -> Option<()> {
        loop {
            let (index, ids) = self.unless_drained(async { prompts.lock().await.recv().await }).await??;
            match ids {
                Some(ids) => self.answer(index, ids).await?,
                None => refuse(index, "BAD_LINE", r#"a prompt is a line of JSON, {"ids": [1, 2, 3]}"#),
            }
        }
    }
}

/// Writes a line in one piece.
fn write(result: Value) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{result}").and_then(|()| out.flush()).is_err() {
        eprintln!("worker: a result cannot be written");
        std::process::exit(1);
    }
}

fn refuse(index: u64, reason: &str, message: &str) {
    METRICS.refused.fetch_add(1, Relaxed);
    write(json!({"index": index, "error": reason, "message": message}));
}

// ---- the queue ----

/// Returns the token ids of a line; None: it is no prompt.
fn parse(line: &[u8]) -> Option<Vec<i32>> {
    let value: Value = (line.len() <= PROMPT_MAX).then(|| serde_json::from_slice(line).ok())??;
    let id = |id: &Value| id.as_i64().and_then(|id| i32::try_from(id).ok()).filter(|id| *id >= 0);
    value.get("ids")?.as_array()?.iter().map(id).collect::<Option<Vec<_>>>().filter(|ids| !ids.is_empty())
}

/// Reads lines, in a thread of its own, as fast as slots take them: what is not begun stays in the queue.
fn read(mut input: impl BufRead, prompts: mpsc::Sender<(u64, Option<Vec<i32>>)>) {
    let mut line = Vec::new();
    while matches!(input.read_until(b'\n', &mut line), Ok(n) if n > 0) {
        let index = METRICS.read.fetch_add(1, Relaxed);
        if prompts.blocking_send((index, parse(&line))).is_err() {
            return;
        }
        line.clear();
    }
}

/// Drains at the first signal; the second one ends the worker at once.
async fn watch_signals(draining: watch::Sender<bool>) -> std::io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    for _ in 0..2 {
        tokio::select! { _ = term.recv() => (), _ = int.recv() => () }
        if draining.send_replace(true) {
            break;
        }
        eprintln!("worker: draining");
    }
    std::process::exit(143)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|error| {
        eprintln!("worker: {error}");
        std::process::exit(2)
    });
    let input: Box<dyn BufRead + Send> = match &options.file {
        Some(file) => Box::new(std::io::BufReader::new(std::fs::File::open(file)?)),
        None => Box::new(std::io::BufReader::new(std::io::stdin())),
    };
    Metrics::serve(&options.metrics).await?;
    let (drain, draining) = watch::channel(false);
    let (give, take) = mpsc::channel(1);
    let (in_flight, take) = (options.in_flight, Arc::new(Mutex::new(take)));
    let worker = Arc::new(Worker { options, draining, session: Mutex::new(None) });
    tokio::spawn(watch_signals(drain));
    std::thread::spawn(move || read(input, give));
    let slots: Vec<_> = (0..in_flight)
        .map(|_| {
            let (worker, take) = (worker.clone(), take.clone());
            tokio::spawn(async move { worker.slot(&take).await })
        })
        .collect();
    for slot in slots {
        slot.await?;
    }
    let (answered, read) = (METRICS.done.load(Relaxed) + METRICS.refused.load(Relaxed), METRICS.read.load(Relaxed));
    eprintln!("worker: answered {answered} of {read} prompts");
    std::process::exit(if answered == read { 0 } else { 1 }) // the thread that reads still waits for input
}
