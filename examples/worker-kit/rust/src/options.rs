// SPDX-License-Identifier: Apache-2.0

use crate::pb::Sampling;
use std::str::FromStr;
use std::time::Duration;

pub struct Options {
    pub address: String,
    pub ca: Option<String>,
    pub cert: Option<String>,
    pub key: Option<String>,
    pub model: String,
    pub metrics: String,
    pub in_flight: usize,
    pub tokens: u32,
    pub timeout: Duration,
    pub sampling: Sampling,
    pub file: Option<String>,
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} {value}: no such value"))
}

impl Options {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Options {
            address: "unix:/run/npugraphd/npugraphd.sock".into(),
            ca: None,
            cert: None,
            key: None,
            model: "bible".into(),
            metrics: "127.0.0.1:0".into(),
            in_flight: 4,
            tokens: 64,
            timeout: Duration::from_secs(60),
            sampling: Sampling::default(),
            file: None,
        };
        while let Some(name) = words.next() {
            if !name.starts_with("--") {
                options.file = Some(name);
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            options.take(&name, value)?;
        }
        if options.in_flight == 0 || options.tokens == 0 || options.timeout.is_zero() {
            return Err("--in-flight, --tokens and --timeout are at least 1".into());
        }
        Ok(options)
    }

    fn take(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "--address" => self.address = value,
            "--ca" => self.ca = Some(value),
            "--cert" => self.cert = Some(value),
            "--key" => self.key = Some(value),
            "--model" => self.model = value,
            "--metrics" => self.metrics = value,
            "--in-flight" => self.in_flight = number(name, &value)?,
            "--tokens" => self.tokens = number(name, &value)?,
            "--timeout" => self.timeout = Duration::from_secs(number(name, &value)?),
            "--seed" => self.sampling.seed = number(name, &value)?,
            "--temperature" => self.sampling.temperature = number(name, &value)?,
            "--top-k" => self.sampling.top_k = number(name, &value)?,
            "--top-p" => self.sampling.top_p = number(name, &value)?,
            _ => return Err(format!("{name}: no such option")),
        }
        Ok(())
    }
}
