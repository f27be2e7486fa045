// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const BOUNDS: [f64; 6] = [0.005, 0.02, 0.1, 0.5, 2.0, 10.0]; // seconds
const PATIENCE: Duration = Duration::from_secs(2); // with a connection

#[derive(Default)]
pub struct Metrics {
    pub read: AtomicU64,
    pub done: AtomicU64,
    pub refused: AtomicU64,
    pub retries: AtomicU64,
    pub connects: AtomicU64,
    pub tokens: AtomicU64,
    in_flight: AtomicU64,
    first: [AtomicU64; BOUNDS.len() + 1],
    first_us: AtomicU64,
}

const ZERO: AtomicU64 = AtomicU64::new(0);
pub static METRICS: Metrics = Metrics {
    read: ZERO,
    done: ZERO,
    refused: ZERO,
    retries: ZERO,
    connects: ZERO,
    tokens: ZERO,
    in_flight: ZERO,
    first: [ZERO; BOUNDS.len() + 1],
    first_us: ZERO,
};

/// Counts a prompt as in flight as long as it lives.
pub struct InFlight;

impl Drop for InFlight {
    fn drop(&mut self) {
        METRICS.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Metrics {
    pub fn enter(&self) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight
    }

    pub fn count_first(&self, time: Duration) {
        let at = BOUNDS.iter().position(|bound| time.as_secs_f64() <= *bound).unwrap_or(BOUNDS.len());
        self.first[at].fetch_add(1, Relaxed);
        self.first_us.fetch_add(time.as_micros() as u64, Relaxed);
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let (mut to, mut total) = (String::new(), 0);
        writeln!(to, "# TYPE worker_prompts_total counter")?;
        writeln!(to, "worker_prompts_total{{result=\"done\"}} {}", self.done.load(Relaxed))?;
        writeln!(to, "worker_prompts_total{{result=\"refused\"}} {}", self.refused.load(Relaxed))?;
        for (name, kind, value) in [
            ("worker_retries_total", "counter", &self.retries),
            ("worker_connects_total", "counter", &self.connects),
            ("worker_tokens_total", "counter", &self.tokens),
            ("worker_in_flight", "gauge", &self.in_flight),
        ] {
            writeln!(to, "# TYPE {name} {kind}\n{name} {}", value.load(Relaxed))?;
        }
        writeln!(to, "# TYPE worker_first_token_seconds histogram")?;
        for (i, bucket) in self.first.iter().enumerate() {
            total += bucket.load(Relaxed);
            let bound = BOUNDS.get(i).map_or("+Inf".into(), f64::to_string);
            writeln!(to, "worker_first_token_seconds_bucket{{le=\"{bound}\"}} {total}")?;
        }
        writeln!(to, "worker_first_token_seconds_sum {}", self.first_us.load(Relaxed) as f64 / 1e6)?;
        writeln!(to, "worker_first_token_seconds_count {total}")?;
        Ok(to)
    }

    /// Answers a connection with the metrics, whatever it asks for.
    async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
        if stream.read(&mut [0; 4096]).await? > 0 {
            let body = METRICS.text().unwrap_or_default();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
            stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
        }
        Ok(())
    }

    pub async fn serve(address: &str) -> std::io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        eprintln!("worker: metrics on http://{}/metrics", listener.local_addr()?);
        tokio::spawn(async move {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(tokio::time::timeout(PATIENCE, Self::answer(stream)));
                }
            }
        });
        Ok(())
    }
}
